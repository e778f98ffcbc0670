//! CEL rules about the servers of ClickHouse: of a pipeline that names them itself, and of a `TraceConnection`. Each stands beside what is said
//! when it refuses something.

/// Where the planner refuses servers that are not named once: in one list, or in several shards. It may refuse other things there.
pub(crate) const ONE_OF: &[&str] =
    &["endpoints: at least one endpoint", "shards: is set together with endpoints"];

/// Encrypted endpoints for a spec with `tls`.
pub(crate) const TLS: &str = "!has(self.tls) || (has(self.endpoints) && self.endpoints.exists(e, e.startsWith('https:'))) \
    || (has(self.shards) && self.shards.exists(s, s.endpoints.exists(e, e.startsWith('https:'))))";
pub(crate) const TLS_SAID: &str =
    "tls is set, but endpoints are http: write them as https://host:port, or leave tls out";

/// No shard goes.
pub(crate) const ADDED: &str = "!has(oldSelf.shards) || (has(self.shards) ? size(self.shards) >= size(oldSelf.shards) : size(oldSelf.shards) == 1)";
pub(crate) const ADDED_SAID: &str =
    "shards can only be added, at the end: rows on their way to a removed shard could not be inserted";

/// Each shard stays where it is. CEL has no numbers of places but those that are written down: as many as there may be shards.
pub(crate) const PLACE: &str = "!has(oldSelf.shards) || !has(self.shards) || [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,\
    32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63].all(i, \
    i >= size(oldSelf.shards) || i >= size(self.shards) || (has(oldSelf.shards[i].name) \
    ? has(self.shards[i].name) && self.shards[i].name == oldSelf.shards[i].name \
    : self.shards[i].endpoints.exists(e, e in oldSelf.shards[i].endpoints)))";
pub(crate) const PLACE_SAID: &str = "a shard keeps its place in the list: one with a name keeps the name, and one without a name keeps at least one of its \
     endpoints (to change all of them, first give every shard a name)";

/// Endpoints become a list of shards.
pub(crate) const FIRST: &str = "!has(oldSelf.endpoints) || !has(self.shards) || self.shards[0].endpoints.exists(e, e in oldSelf.endpoints)";
pub(crate) const FIRST_SAID: &str =
    "the first of shards replaces endpoints: it keeps at least one of those endpoints";

/// Shards that are added may take endpoints of others: that is how servers that are no replicas of each other become shards. Only shards
/// that change are compared, for what one change may cost the API server.
pub(crate) const MOVES: &str = "!has(oldSelf.shards) || !has(self.shards) || [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,\
    32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63].all(i, \
    i >= size(oldSelf.shards) || i >= size(self.shards) || self.shards[i].endpoints == oldSelf.shards[i].endpoints \
    || [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,\
    32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63].all(j, \
    i == j || j >= size(oldSelf.shards) || !sets.intersects(self.shards[i].endpoints, oldSelf.shards[j].endpoints)))";
pub(crate) const MOVES_SAID: &str = "an endpoint may not move to another shard: blocks on their way would go to another server under the same token. Remove it \
     in one edit and add it in a later one, with suspend: true in between";

/// The form of each endpoint.
pub(crate) const ENDPOINTS: &str = "self.all(e, e.matches('^https?://[^/@, ]+:[1-9][0-9]{0,4}/?$'))";
pub(crate) const ENDPOINTS_SAID: &str =
    "each of endpoints is http://host:port or https://host:port, such as http://clickhouse:8123";

/// No address twice in one list. The plan leaves out other spellings of an address.
pub(crate) const DISTINCT: &str = "self.all(e, self.exists_one(f, f == e))";
pub(crate) const DISTINCT_SAID: &str = "endpoints has an address twice, which would count as two replicas: list each server once, such as http://clickhouse-0:8123 \
     and http://clickhouse-1:8123";

/// Encrypted or not.
pub(crate) const SCHEMES: &str =
    "self.all(e, e.startsWith('https:')) || !self.exists(e, e.startsWith('https:'))";
pub(crate) const SCHEMES_SAID: &str =
    "endpoints are all http or all https: a server without TLS would receive the password in clear text";

/// The same of shards.
pub(crate) const SHARD_SCHEMES: &str = "self.all(s, s.endpoints.all(e, e.startsWith('https:'))) || !self.exists(s, s.endpoints.exists(e, e.startsWith('https:')))";
pub(crate) const SHARD_SCHEMES_SAID: &str = "the endpoints of shards are all http or all https: a server without TLS would receive the password in clear text";

/// Names of shards.
pub(crate) const NAMES: &str = "!self.exists(s, has(s.name)) || self.all(s, has(s.name) && self.exists_one(t, has(t.name) && t.name == s.name))";
pub(crate) const NAMES_SAID: &str = "either every shard has a name of its own, or no shard has a name";
