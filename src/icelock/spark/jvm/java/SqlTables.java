package icelock;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
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
import scala.Function1;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * The tables of a SQL query, found in Spark's parse of it, and put in their places. Compiled in a running session by native.py; raw types,
 * as Janino knows no generics.
 */
public class SqlTables extends AbstractPartialFunction {
  private static final char SEPARATOR = 0;
  private final Map known;
  private final List found = new ArrayList();

  private SqlTables(Map known) {
    this.known = known;
  }

  /**
   * Returns the tables that a query names, and null for a statement that is no query. A table is its name's parts with a NUL after each, then "" or
   * "version:" and what it is to be read as of, or "timestamp".
   */
  public static List names(SparkSession session, String query) throws ParseException {
    LogicalPlan plan = session.sessionState().sqlParser().parsePlan(query);
    if (plan instanceof Command || plan instanceof ParsedStatement) {
      return null;
    }
    SqlTables collector = new SqlTables(null);
    collector.walk(plan);
    return collector.found;
  }

  /** Returns the rows of a query whose tables, by what names() says of them, are these. */
  public static Dataset rows(SparkSession session, String query, Map tables) throws ParseException {
    LogicalPlan plan = session.sessionState().sqlParser().parsePlan(query);
    return Dataset.ofRows(session, new SqlTables(tables).walk(plan));
  }

  private LogicalPlan walk(LogicalPlan plan) {
    return (LogicalPlan) plan.transformUpWithSubqueries(this);
  }

  public boolean isDefinedAt(Object node) {
    return node instanceof UnresolvedRelation || node instanceof RelationTimeTravel || node instanceof UnresolvedWith;
  }

  public Object applyOrElse(Object node, Function1 otherwise) {
    if (node instanceof UnresolvedWith) {
      return with((UnresolvedWith) node);
    }
    if (node instanceof RelationTimeTravel && ((RelationTimeTravel) node).relation() instanceof UnresolvedRelation) {
      RelationTimeTravel travel = (RelationTimeTravel) node;
      String version = travel.version().isDefined() ? "version:" + travel.version().get() : "timestamp";
      return table((LogicalPlan) node, (UnresolvedRelation) travel.relation(), version);
    }
    if (node instanceof UnresolvedRelation) {
      return table((LogicalPlan) node, (UnresolvedRelation) node, "");
    }
    return otherwise.apply(node);
  }

  private LogicalPlan table(LogicalPlan node, UnresolvedRelation relation, String version) {
    List parts = CollectionConverters.asJava(relation.multipartIdentifier());
    StringBuilder name = new StringBuilder();
    for (int i = 0; i < parts.size(); i++) {
      name.append((String) parts.get(i)).append(SEPARATOR);
    }
    String table = name.append(version).toString();
    if (known == null) {
      found.add(table);
      return node;
    }
    if (!known.containsKey(table)) {
      return node;
    }
    int last = parts.size() - 1;
    Seq qualifier = CollectionConverters.asScala(parts.subList(0, last)).toSeq();
    LogicalPlan rows = ((Dataset) known.get(table)).logicalPlan();
    return new SubqueryAlias(new AliasIdentifier((String) parts.get(last), qualifier), rows);
  }

  /** Common table expressions are no children of the node that has them. */
  private LogicalPlan with(UnresolvedWith node) {
    List relations = new ArrayList();
    java.util.Iterator each = CollectionConverters.asJava(node.cteRelations()).iterator();
    while (each.hasNext()) {
      Tuple3 relation = (Tuple3) each.next();
      relations.add(new Tuple3(relation._1(), walk((LogicalPlan) relation._2()), relation._3()));
    }
    Object[] parts = new Object[node.productArity()];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = node.productElement(i);
    }
    parts[1] = CollectionConverters.asScala(relations).toSeq();
    return (LogicalPlan) ((TreeNode) node).makeCopy(parts);
  }
}
