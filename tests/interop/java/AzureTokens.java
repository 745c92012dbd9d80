import com.azure.core.credential.AccessToken;
import com.azure.core.credential.TokenCredential;
import java.time.OffsetDateTime;
import java.util.Map;
import org.apache.iceberg.azure.AdlsTokenCredentialProvider;
import reactor.core.publisher.Mono;

/** Gives Iceberg's Azure client the token that the tests' double of Key Vault takes for a writer's. */
public class AzureTokens implements AdlsTokenCredentialProvider {
  @Override
  public void initialize(Map<String, String> properties) {
    // the token is fixed
  }

  @Override
  public TokenCredential credential() {
    return request -> Mono.just(new AccessToken("writer", OffsetDateTime.now().plusHours(1)));
  }
}
