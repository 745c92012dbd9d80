package icelock;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.AliasIdentifier;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Finds the tables of a SQL query in Spark's parse of it, and puts their rows in their places.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"}) // Janino makes no bridge methods, and does not cast what generic methods return
public class SqlTables implements Function<Object, Object> {
  private static final char SEPARATOR = 0;
  private final Map<?, ?> known;
  private final List<Object> found = new ArrayList<>();

  private SqlTables(Map<?, ?> known) {
    this.known = known;
  }

  /**
   * Returns the tables that a query names, or null for a statement that is not a query. A table is the parts of its name with a NUL after
   * each, then "", "version:" and the version that it is read as of, or "timestamp".
   */
  public static List<?> names(SparkSession session, String query) throws ParseException {
    LogicalPlan plan = session.sessionState().sqlParser().parsePlan(query);
    if (plan instanceof Command || plan instanceof ParsedStatement) {
      return null;
    }
    SqlTables collector = new SqlTables(null);
    collector.walk(plan);
    return collector.found;
  }

  /** Returns the rows of a query over these tables, by what names() returned for each. */
  public static Dataset<?> rows(SparkSession session, String query, Map<?, ?> tables) throws ParseException {
    LogicalPlan plan = session.sessionState().sqlParser().parsePlan(query);
    return Dataset.ofRows(session, new SqlTables(tables).walk(plan));
  }

  private LogicalPlan walk(LogicalPlan plan) {
    return (LogicalPlan) plan.transformUpWithSubqueries(new Replacing(this));
  }

  @Override
  public Object apply(Object node) {
    if (node instanceof UnresolvedWith) {
      return with((UnresolvedWith) node);
    }
    if (node instanceof RelationTimeTravel && ((RelationTimeTravel) node).relation() instanceof UnresolvedRelation) {
      RelationTimeTravel travel = (RelationTimeTravel) node;
      String version = travel.version().isDefined() ? "version:" + travel.version().get() : "timestamp";
      return table((UnresolvedRelation) travel.relation(), version);
    }
    return node instanceof UnresolvedRelation ? table((UnresolvedRelation) node, "") : null;
  }

  private LogicalPlan table(UnresolvedRelation relation, String version) {
    List<?> parts = CollectionConverters.asJava(relation.multipartIdentifier());
    StringBuilder name = new StringBuilder();
    for (Object part : parts) {
      name.append((String) part).append(SEPARATOR);
    }
    String table = name.append(version).toString();
    if (known == null) {
      found.add(table);
      return null;
    }
    if (!known.containsKey(table)) {
      return null;
    }
    int last = parts.size() - 1;
    Seq qualifier = Plans.seq(parts.subList(0, last));
    LogicalPlan rows = ((Dataset<?>) known.get(table)).logicalPlan();
    return new SubqueryAlias(new AliasIdentifier((String) parts.get(last), qualifier), rows);
  }

  /** Common table expressions are not children of their node. */
  private LogicalPlan with(UnresolvedWith node) {
    List<Object> relations = new ArrayList<>();
    for (Object each : CollectionConverters.asJava(node.cteRelations())) {
      Tuple3<?, ?, ?> relation = (Tuple3<?, ?, ?>) each;
      relations.add(new Tuple3<Object, Object, Object>(relation._1(), walk((LogicalPlan) relation._2()), relation._3()));
    }
    Object[] parts = Plans.parts(node);
    parts[1] = Plans.seq(relations);
    return (LogicalPlan) ((TreeNode) node).makeCopy(parts);
  }
}
