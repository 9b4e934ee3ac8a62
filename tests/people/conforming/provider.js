// A certified implementation of OpenID Connect, with one client and a chosen account: PORT, and where to lead back.
import { Provider } from "oidc-provider";

const [port, back, after] = process.argv.slice(2);
const accounts = { otto: ["Drydock.Operator"], guest: [] };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    {
      client_id: "drydock",
      client_secret: "a-secret-of-drydock-for-the-tests",
      grant_types: ["authorization_code", "refresh_token"],
      redirect_uris: [back],
      post_logout_redirect_uris: [after],
    },
  ],
  claims: { openid: ["sub", "roles"], profile: ["preferred_username"] },
  // Roles are in the ID token, as an app role of Entra ID does.
  conformIdTokenClaims: false,
  findAccount: (context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, roles: accounts[id] ?? [], preferred_username: `${id}@another.example` }),
  }),
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: () => true,
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("listening"));
