// Approves the event with the least time left, through the client that is generated from the OpenAPI document.
import createClient from "openapi-fetch";
import type { components, paths } from "./drydock.js";

type Approval = components["schemas"]["Approval"];

export async function approveNext(baseUrl: string, token: string, comment: string): Promise<Approval> {
  const drydock = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

  const listed = await drydock.GET("/api/v1/events/", { params: { query: { needs_decision: true } } });
  if (listed.error) throw new Error(listed.error.detail);
  const event = listed.data.results[0];
  if (!event) throw new Error("Nothing needs a decision.");

  const { data, error } = await drydock.POST("/api/v1/events/{event_id}/approvals/", {
    params: { path: { event_id: event.event_id }, header: { "Idempotency-Key": crypto.randomUUID() } },
    body: { comment, expected_version: event.version },
  });
  if (!error) return data;
  switch (error.type) {
    case "already-decided":
      throw new Error(`${error.by ?? "Another user"} was first.`);
    case "guarded":
      throw new Error((error.guards ?? []).map((guard) => guard.sentence).join(" "));
    default:
      throw new Error(error.detail);
  }
}
