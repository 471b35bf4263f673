//! The hub's HTTP API: each operation, keys, and the documents that describe them.

mod command;
mod hostile;
mod keys;
mod person;
mod statistics;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use daemon::hub_api::{ApiConfig, CertificateFiles};
use daemon::role::hub::HubProcess;
use hub::store::StoreStats;
use hub::{ClaimId, HubStats, Name, NodeEvent, Redacted};
use serde_json::{Value, json};
use wire::ClientId;

use crate::http::{Answer, ask};
use crate::net::{Net, PATIENCE, Program, tickwire, until};
use crate::node::{NodeRequest, Talker};

const PLAYER: ClientId = ClientId(42);

/// A hub with an API, and a key of each role.
struct Api {
    net: Net,
    hub: Option<HubProcess>,
    address: SocketAddr,
    config: ApiConfig,
}

const ROLES: [&str; 4] = ["metrics", "read", "write", "admin"];

impl Api {
    fn new() -> Self {
        Self::with(|_| {})
    }

    /// A hub with TLS, which may not be up yet.
    fn tls(certificate: CertificateFiles) -> Self {
        Self::start(|config| config.certificate = Some(certificate))
    }

    fn with(change: impl FnOnce(&mut ApiConfig)) -> Self {
        let api = Self::start(change);
        until("the API is up", || {
            let health = api.open("GET /v1/health");
            (health.text("status") == "up").then_some(())
        });
        api
    }

    fn start(change: impl FnOnce(&mut ApiConfig)) -> Self {
        let mut net = Net::new();
        for role in ROLES {
            new_key(&net, role);
        }
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut config = ApiConfig::new(listen, net.path("hub.keys"), None);
        change(&mut config);
        let hub = net.hub_with(Some(&config));
        let address = hub.api_address().unwrap();
        Self {
            net,
            hub: Some(hub),
            address,
            config,
        }
    }

    /// Ends the hub, and starts it again on its folder.
    fn restart(&mut self) {
        self.hub.take().unwrap().shutdown(PATIENCE).unwrap();
        let hub = self.net.hub_with(Some(&self.config));
        self.address = hub.api_address().unwrap();
        self.hub = Some(hub);
        until("the API is up", || {
            let health = self.open("GET /v1/health");
            (health.text("status") == "up").then_some(())
        });
    }

    /// A request with the key of `role`.
    fn ask(&self, role: &str, line: &str, body: &str) -> Answer {
        let bearer = bearer(&self.net, role);
        ask(self.address, line, &[("Authorization", &bearer)], body)
    }

    /// A request without a key.
    fn open(&self, line: &str) -> Answer {
        ask(self.address, line, &[], "")
    }

    fn metric(&self, name: &str) -> u64 {
        let page = crate::http::raw(
            self.address,
            crate::http::request(
                "GET /metrics",
                &[("Authorization", &bearer(&self.net, "metrics"))],
                "",
            )
            .as_bytes(),
        );
        let page = String::from_utf8(page).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let line = line.unwrap_or_else(|| panic!("{name} is missing in {page}"));
        line.trim().parse().unwrap()
    }

    /// Starts a node that holds `player`.
    fn holder(&self, player: ClientId) -> (Talker, ClaimId) {
        let node = Talker::start(&self.net, "server-0");
        node.wait_joined();
        node.tell(NodeRequest::Claim(player));
        let claim = loop {
            if let NodeEvent::Claimed(claim) = node.next() {
                break claim;
            }
        };
        until("the API sees the player", || {
            let page = self.ask("read", "GET /v1/presence?kind=players", "");
            let players = page.json["players"].as_array().unwrap();
            let id = player.0.to_string();
            players
                .iter()
                .any(|found| found["player"] == id)
                .then_some(())
        });
        (node, claim)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.take() {
            hub.shutdown(PATIENCE).unwrap();
        }
    }
}

fn new_key(net: &Net, role: &str) {
    let made = tickwire()
        .args(["hub", "key", "--role", role, "--name", role, "--keys"])
        .arg(net.path("hub.keys"))
        .arg(token_file(net, role))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

fn token_file(net: &Net, role: &str) -> PathBuf {
    net.path(&format!("{role}.token"))
}

fn bearer(net: &Net, role: &str) -> String {
    let token = std::fs::read_to_string(token_file(net, role)).unwrap();
    format!("Bearer {}", token.trim())
}

/// Starts a hub with an API as a process; returns the address of the API.
fn hub_process(net: &mut Net) -> (Program, SocketAddr) {
    net.free_hub_port();
    let mut command = net.hub_command();
    command
        .args(["--http", "127.0.0.1:0", "--plain-http", "--http-keys"])
        .arg(net.path("hub.keys"));
    let mut hub = Program::start(&mut command, &net.path("hub.log"));
    let line = hub.next_line();
    let address = line.trim().rsplit("http://").next().unwrap();
    (hub, address.parse().unwrap())
}

fn base64(body: &[u8]) -> Value {
    use base64ct::Encoding as _;
    base64ct::Base64::encode_string(body).into()
}

#[test]
fn ha1_mail_is_sent_read_acknowledged_and_cleared_by_http() {
    let api = Api::new();
    for body in ["one", "two", "three"] {
        let sent = api.ask("write", "POST /v1/mail/42?ttl=3600", body);
        assert_eq!((sent.status, &sent.json), (201, &json!({"stored": true})));
    }
    let page = api.ask("read", "GET /v1/mail/42?max=2", "");
    assert_eq!((page.status, &page.json["more"]), (200, &json!(true)));
    let mails = page.json["mails"].as_array().unwrap();
    assert_eq!(mails.len(), 2);
    assert_eq!(mails[1]["body"], base64(b"two"));
    let hub = api.net.identity("hub").node_id().to_string();
    assert_eq!(mails[1]["from"], hub);
    let second = mails[1]["seq"].as_u64().unwrap();
    let rest = api.ask("read", &format!("GET /v1/mail/42?from={}", second + 1), "");
    assert_eq!(rest.json["mails"][0]["body"], base64(b"three"));
    assert_eq!(rest.json["more"], false);

    let body = json!({ "upto": second }).to_string();
    assert_eq!(api.ask("write", "POST /v1/mail/42/ack", &body).status, 200);
    let left = api.ask("read", "GET /v1/mail/42", "");
    assert_eq!(left.json["mails"].as_array().unwrap().len(), 1);
    let cleared = api.ask("write", "DELETE /v1/mail/42", "");
    assert_eq!(cleared.json, json!({"deleted": 1}));
    let none = api.ask("read", "GET /v1/mail/42", "");
    assert_eq!(none.json, json!({"mails": [], "more": false}));
    assert_eq!(api.metric("tickwire_hub_store_stored_total"), 3);
}

#[test]
fn ha1_mail_of_http_reaches_the_node_of_the_player_and_back() {
    let api = Api::new();
    let (node, claim) = api.holder(PLAYER);
    let sent = api.ask("write", "POST /v1/mail/42", "gift");
    assert_eq!(sent.status, 201);
    let (seq, body) = loop {
        if let NodeEvent::Mail { seq, body, .. } = node.next() {
            break (seq, body);
        }
    };
    assert_eq!(body, Redacted(Bytes::from_static(b"gift")));
    node.tell(NodeRequest::Acknowledge(claim, seq));
    until("the mail is deleted", || {
        let page = api.ask("read", "GET /v1/mail/42", "");
        page.json["mails"]
            .as_array()
            .unwrap()
            .is_empty()
            .then_some(())
    });
}

#[test]
fn ha1_hub_1_mail_that_http_confirmed_survives_a_kill() {
    let mut net = Net::new();
    for role in ROLES {
        new_key(&net, role);
    }
    let (hub, address) = hub_process(&mut net);
    let write = bearer(&net, "write");
    for number in 0..8 {
        let sent = until("the API has its link", || {
            let headers = [("Authorization", write.as_str())];
            let body = format!("mail {number}");
            let sent = ask(address, "POST /v1/mail/42", &headers, &body);
            (sent.status != 503).then_some(sent)
        });
        assert_eq!(sent.status, 201, "{sent:?}");
    }
    hub.kill();
    let (hub, address) = hub_process(&mut net);
    let read = bearer(&net, "read");
    let page = ask(address, "GET /v1/mail/42", &[("Authorization", &read)], "");
    let mails = page.json["mails"].as_array().unwrap().iter();
    let bodies: Vec<&Value> = mails.map(|mail| &mail["body"]).collect();
    let sent: Vec<Value> = (0..8)
        .map(|number| base64(format!("mail {number}").as_bytes()))
        .collect();
    assert_eq!(bodies, sent.iter().collect::<Vec<_>>());
    hub.kill();
}

#[test]
fn ha8_a_repeated_mail_with_its_idempotency_key_is_stored_once() {
    let mut api = Api::with(|config| config.mail_keys_each_max = 3);
    let send = |api: &Api, role: &str, key: &str, body: &str| {
        let bearer = bearer(&api.net, role);
        let headers = [("Authorization", &bearer[..]), ("Idempotency-Key", key)];
        ask(api.address, "POST /v1/mail/42", &headers, body)
    };
    let count = |api: &Api| {
        let page = api.ask("read", "GET /v1/mail/42", "");
        page.json["mails"].as_array().unwrap().len()
    };
    // At once, and one after another.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(send(&api, "write", "order-7", "sword").status, 201));
        }
    });
    for _ in 0..3 {
        assert_eq!(send(&api, "write", "order-7", "sword").status, 201);
    }
    assert_eq!(count(&api), 1);
    send(&api, "write", "order-7", "shield").assert_refused(422, "key_reused");
    assert_eq!(
        send(&api, "admin", "order-7", "sword").status,
        201,
        "another API key"
    );
    assert_eq!(count(&api), 2);
    for key in ["order-8", "order-9"] {
        assert_eq!(send(&api, "write", key, "sword").status, 201);
    }
    send(&api, "write", "order-10", "sword").assert_refused(503, "busy");
    assert_eq!(
        send(&api, "write", "order-7", "sword").status,
        201,
        "still known"
    );
    for key in ["", "a b", &"x".repeat(256)] {
        send(&api, "write", key, "sword").assert_refused(400, "bad_idempotency_key");
    }
    assert_eq!(count(&api), 4);
    // The window is in memory, as the guide says.
    api.restart();
    assert_eq!(send(&api, "write", "order-7", "sword").status, 201);
    assert_eq!(count(&api), 5);
}

#[test]
fn ha8_mail_key_window_and_mail_keys_max_are_limits() {
    let api = Api::with(|config| {
        config.mail_key_window = Duration::from_millis(300);
        config.mail_keys_max = 1;
    });
    let bearer = bearer(&api.net, "write");
    let send = |key: &str| {
        let headers = [("Authorization", &bearer[..]), ("Idempotency-Key", key)];
        ask(api.address, "POST /v1/mail/42", &headers, "sword").status
    };
    assert_eq!(send("order-7"), 201);
    until("the first key is forgotten", || {
        (send("order-8") == 201).then_some(())
    });
}

#[test]
fn ha1_an_acknowledgement_past_the_last_mail_is_refused() {
    let api = Api::new();
    let ack = |upto: u64| {
        let body = json!({ "upto": upto }).to_string();
        api.ask("write", "POST /v1/mail/42/ack", &body)
    };
    let refused = ack(1);
    refused.assert_refused(409, "past_the_end");
    assert_eq!(api.ask("write", "POST /v1/mail/42", "one").status, 201);
    let page = api.ask("read", "GET /v1/mail/42", "");
    let seq = page.json["mails"][0]["seq"].as_u64().unwrap();
    let refused = ack(seq + 1);
    refused.assert_refused(409, "past_the_end");
    assert!(
        refused.text("detail").contains(&format!("has {seq},")),
        "{refused:?}"
    );
    assert_eq!(ack(seq).status, 200);
    assert_eq!(ack(seq).status, 200, "again");
}

#[test]
fn ha1_presence_lists_nodes_and_players_by_page_prefix_and_holder() {
    let api = Api::new();
    let (node, _) = api.holder(ClientId(42));
    for player in [7, 421, 43] {
        node.tell(NodeRequest::Claim(ClientId(player)));
    }
    let id = api.net.identity("server-0").node_id().to_string();
    let players = |query: &str| {
        let line = format!("GET /v1/presence?kind=players{query}");
        let page = api.ask("read", &line, "");
        assert_eq!(page.status, 200, "{page:?}");
        let players = page.json["players"].as_array().unwrap().iter();
        let names = players.map(|player| player["player"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), page.json["next"].clone())
    };
    until("all players are there", || {
        (players("").0.len() == 4).then_some(())
    });
    assert_eq!(
        players(""),
        (
            ["7", "42", "43", "421"].map(str::to_owned).to_vec(),
            Value::Null
        )
    );
    assert_eq!(players("&prefix=42").0, ["42", "421"]);
    assert_eq!(players("&max=3").1, "player-43");
    assert_eq!(players("&max=9").0.len(), 4);
    assert_eq!(players("&max=3&after=player-43").0, ["421"]);
    assert_eq!(players(&format!("&node={id}")).0.len(), 4);
    assert_eq!(players(&format!("&node={}", "0".repeat(64))).0.len(), 0);

    let nodes = api.ask("read", "GET /v1/presence?kind=nodes", "");
    let nodes = nodes.json["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 1, "the API's own node is not listed");
    assert_eq!(
        (&nodes[0]["node"], &nodes[0]["role"]),
        (&json!(id), &json!("game-node"))
    );
    let none = api.ask("read", "GET /v1/presence?kind=nodes&service=shop", "");
    assert_eq!(none.json["nodes"], json!([]));
}

#[test]
fn ha1_keys_are_set_by_revision_read_listed_and_deleted() {
    let api = Api::new();
    let write = bearer(&api.net, "write");
    let put = |key: &str, condition: (&str, &str), value: &str| {
        let headers = [("Authorization", write.as_str()), condition];
        ask(api.address, &format!("PUT /v1/kv/{key}"), &headers, value)
    };
    let created = put("zone/7", ("If-None-Match", "*"), "one");
    assert_eq!(created.status, 200, "{created:?}");
    put("zone/7", ("If-None-Match", "*"), "two").assert_refused(412, "conflict");
    let revision = created.text("revision");
    let changed = put("zone/7", ("If-Match", revision), "two");
    assert_eq!(changed.status, 200, "{changed:?}");
    put("zone/7", ("If-Match", revision), "three").assert_refused(412, "conflict");
    put("zone/7", ("If-Match", "x"), "three").assert_refused(400, "bad_revision");
    let found = api.ask("read", "GET /v1/kv/zone%2F7", "");
    assert_eq!(found.json["value"], base64(b"two"));
    assert_eq!(found.text("revision"), changed.text("revision"));
    put("zone/8", ("X-None", ""), "other");
    put("other", ("X-None", ""), "other");
    let page = api.ask("read", "GET /v1/kv?prefix=zone/&max=1", "");
    assert_eq!(
        (&page.json["entries"][0]["key"], &page.json["more"]),
        (&json!("zone/7"), &json!(true))
    );
    let rest = api.ask("read", "GET /v1/kv?prefix=zone/&after=zone/7", "");
    let keys = rest.json["entries"].as_array().unwrap();
    assert_eq!((keys.len(), &keys[0]["key"]), (1, &json!("zone/8")));
    assert_eq!(api.ask("write", "DELETE /v1/kv/zone/7", "").status, 200);
    api.ask("read", "GET /v1/kv/zone/7", "")
        .assert_refused(404, "no_key_there");
    api.ask("read", "GET /v1/kv/.dot", "")
        .assert_refused(400, "bad_key");
}

#[test]
fn ha1_page_max_is_a_limit_of_mail_and_presence() {
    let api = Api::with(|config| config.page_max = 2);
    let (node, _) = api.holder(ClientId(1));
    (2..5).for_each(|player| node.tell(NodeRequest::Claim(ClientId(player))));
    let line = "GET /v1/presence?kind=players&max=100";
    until("more players than a page holds", || {
        let page = api.ask("read", line, "");
        assert!(page.json["players"].as_array().unwrap().len() <= 2);
        page.json["next"].is_string().then_some(())
    });
    for _ in 0..3 {
        assert_eq!(api.ask("write", "POST /v1/mail/9", "mail").status, 201);
    }
    let page = api.ask("read", "GET /v1/mail/9?max=100", "");
    assert_eq!(page.json["mails"].as_array().unwrap().len(), 2);
    assert_eq!(page.json["more"], true);
}

#[test]
fn ha1_answer_timeout_is_a_limit() {
    let api = Api::start(|config| config.answer_timeout = Duration::ZERO);
    let late = until("a request is not answered at once", || {
        let health = api.open("GET /v1/health");
        (health.status != 200).then_some(health)
    });
    late.assert_refused(504, "no_answer");
}

#[test]
fn ha1_live_messages_and_kicks_reach_the_node_of_the_player() {
    let api = Api::new();
    api.ask("write", "POST /v1/forward/42", "hello")
        .assert_refused(404, "offline");
    api.ask("admin", "POST /v1/players/42/kick", "cheats")
        .assert_refused(404, "offline");
    let (node, claim) = api.holder(PLAYER);
    let news = Name::new("news").unwrap();
    node.tell(NodeRequest::Subscribe(claim, news));

    let forwarded = api.ask("write", "POST /v1/forward/42", "hello");
    assert_eq!(
        (forwarded.status, forwarded.json),
        (200, json!({"reached": true}))
    );
    while node.next() != NodeEvent::MessageReady(claim) {}
    let cast = api.ask("write", "POST /v1/cast/news", "patch");
    assert_eq!(
        (cast.status, cast.json),
        (200, json!({"nodes": 1, "busy": 0}))
    );
    let kicked = api.ask("admin", "POST /v1/players/42/kick", "cheats");
    assert_eq!(kicked.status, 200, "{kicked:?}");
    let reason = loop {
        if let NodeEvent::Kicked { reason, .. } = node.next() {
            break reason;
        }
    };
    assert_eq!(reason, Redacted(Bytes::from_static(b"cheats")));
}

#[test]
fn ha1_every_counter_of_hub_and_store_is_a_metric() {
    let api = Api::new();
    let page = crate::http::raw(
        api.address,
        crate::http::request(
            "GET /metrics",
            &[("Authorization", &bearer(&api.net, "metrics"))],
            "",
        )
        .as_bytes(),
    );
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("text/plain; version=0.0.4"), "{page}");
    let hub = serde_json::to_value(HubStats::default()).unwrap();
    let store = serde_json::to_value(StoreStats::default()).unwrap();
    for (prefix, stats) in [("tickwire_hub_", hub), ("tickwire_hub_store_", store)] {
        for (field, value) in stats.as_object().unwrap() {
            let name = if value.is_object() {
                format!("{prefix}{field}_")
            } else if field.starts_with("dropped_") {
                format!("{prefix}dropped_total{{")
            } else {
                format!("\n{prefix}{field}_total ")
            };
            assert!(page.contains(&name), "{name}");
        }
    }
    for name in [
        "tickwire_hub_players 0",
        "tickwire_hub_nodes 1",
        "tickwire_hub_http_connections_open 1",
        "tickwire_hub_http_requests_open 1",
        "tickwire_hub_port_opened_total 1",
        "tickwire_hub_storage_batches_total",
        "tickwire_hub_http_watches_opened_total 0",
        "tickwire_hub_statistics_stored_total 0",
        "tickwire_hub_statistics_link_stored_total 0",
        "tickwire_hub_statistics_series 0",
        "tickwire_hub_statistics_rollup_records_total 0",
        "tickwire_hub_statistics_rollup_late_total{level=\"1h\"} 0",
    ] {
        assert!(page.contains(name), "{name} in {page}");
    }
}

/// Every operation, with what it needs to succeed.
const OPERATIONS: [(&str, &str, &str); 25] = [
    ("GET", "/v1/health", ""),
    ("GET", "/v1/openapi.json", ""),
    ("GET", "/metrics", ""),
    ("POST", "/v1/mail/{player}", "text"),
    ("GET", "/v1/mail/{player}", ""),
    ("POST", "/v1/mail/{player}/ack", r#"{"upto": 1}"#),
    ("DELETE", "/v1/mail/{player}", ""),
    ("GET", "/v1/senders/{node}/mail", ""),
    ("DELETE", "/v1/senders/{node}/mail", ""),
    ("GET", "/v1/presence", ""),
    ("POST", "/v1/players/{player}/kick", "reason"),
    ("POST", "/v1/forward/{player}", "text"),
    ("POST", "/v1/cast/{topic}", "text"),
    ("PUT", "/v1/kv/{key}", "value"),
    ("GET", "/v1/kv/{key}", ""),
    ("GET", "/v1/kv", ""),
    ("DELETE", "/v1/kv/{key}", ""),
    ("POST", "/v1/leases", ""),
    ("POST", "/v1/leases/{lease}/renew", ""),
    ("DELETE", "/v1/leases/{lease}", ""),
    ("GET", "/v1/players/{player}/data", ""),
    ("DELETE", "/v1/players/{player}/data", ""),
    ("GET", "/v1/stats", ""),
    ("GET", "/v1/stats/{name}", ""),
    ("POST", "/v1/drain", ""),
];

#[test]
fn ha1_every_described_operation_answers_as_described() {
    // Each operation is also asked with a wrong key.
    let api = Api::with(|config| config.failures_burst = 100);
    let description = api.open("GET /v1/openapi.json").json;
    let (_node, _) = api.holder(PLAYER);
    let mut described = 0;
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            described += 1;
            if path == "/v1/watch" {
                // A plain request of it gets the documented refusal.
                let answer = api.ask("admin", "GET /v1/watch", "");
                assert_described(operation, &description, &answer);
                continue;
            }
            let method = method.to_uppercase();
            let found = OPERATIONS
                .iter()
                .find(|(of, at, _)| *of == method && at == path);
            let (_, _, body) = found.unwrap_or_else(|| panic!("{method} {path} has no request"));
            // Each operation of it needs a lease that exists.
            let granted = api.ask("write", "POST /v1/leases?ttl=3600", "");
            let at = path
                .replace("{player}", "42")
                .replace("{node}", &"7".repeat(64))
                .replace("{topic}", "news")
                .replace("{lease}", granted.text("lease"))
                .replace("{name}", "kill")
                .replace("{key}", "zone/7");
            let line = format!("{method} {at}");
            let Some(role) = operation["x-role"].as_str() else {
                assert_described(operation, &description, &api.open(&line));
                continue;
            };
            let unknown = format!("Bearer {}", "0".repeat(64));
            let refused = ask(api.address, &line, &[("Authorization", &unknown)], body);
            assert_eq!(refused.status, 401, "{line}");
            assert_described(operation, &description, &refused);
            let lesser = ROLES.iter().position(|name| *name == role).unwrap();
            if let Some(lesser) = lesser.checked_sub(1) {
                let refused = api.ask(ROLES[lesser], &line, body);
                refused.assert_refused(403, "role");
                assert_described(operation, &description, &refused);
            }
            if path == "/v1/kv/{key}" {
                // Each method of it needs a key that exists.
                api.ask("write", "PUT /v1/kv/zone/7", "value");
            }
            let answer = api.ask(role, &line, body);
            assert!((200..300).contains(&answer.status), "{line}: {answer:?}");
            assert_described(operation, &description, &answer);
            // With the wrong method, and a wrong player.
            let wrong = ask(api.address, &format!("PATCH {at}"), &[], "");
            wrong.assert_refused(405, "no_method");
            if path.contains("{player}") {
                let at = path.replace("{player}", "042");
                let answer = api.ask(role, &format!("{method} {at}"), body);
                assert_eq!(answer.status, 400, "{at}");
                assert_described(operation, &description, &answer);
            }
        }
    }
    assert_eq!(described, OPERATIONS.len() + 1);
    api.open("GET /v2/health").assert_refused(404, "no_route");
}

/// Asserts that the operation describes the status, and that the body has the required fields.
fn assert_described(operation: &Value, description: &Value, answer: &Answer) {
    let resolve = |value: &Value| match value["$ref"].as_str() {
        Some(name) => description.pointer(&name[1..]).unwrap().clone(),
        None => value.clone(),
    };
    let response = &operation["responses"][answer.status.to_string()];
    assert!(response.is_object(), "{operation} has no {answer:?}");
    let response = resolve(response);
    let schema = resolve(&response["content"]["application/json"]["schema"]);
    for field in schema["required"].as_array().into_iter().flatten() {
        let field = field.as_str().unwrap();
        assert!(answer.json.get(field).is_some(), "{field} in {answer:?}");
    }
}
