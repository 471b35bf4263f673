//! `tickwire hub` against a running hub: output, exit status, TLS.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use daemon::hub_api::CertificateFiles;
use hub::NodeEvent;
use serde_json::{Value, json};
use wire::ClientId;

use super::{Api, ROLES, bearer, hub_process, new_key, token_file};
use crate::http::ask;
use crate::net::{Net, tickwire, until};
use crate::node::{NodeRequest, Talker};

/// Runs `tickwire hub` with these words, and the key of `role`.
pub(super) fn run(api: &Api, role: &str, words: &[&str]) -> Output {
    tickwire()
        .arg("hub")
        .args(words)
        .args(["--http", &api.address.to_string(), "--token-file"])
        .arg(token_file(&api.net, role))
        .output()
        .unwrap()
}

pub(super) fn text(api: &Api, role: &str, words: &[&str]) -> String {
    let output = run(api, role, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn json(api: &Api, role: &str, words: &[&str]) -> Value {
    let words = [words, &["--json"]].concat();
    serde_json::from_str(&text(api, role, &words)).unwrap()
}

#[test]
fn ha4_commands_print_text_and_json_of_presence() {
    let api = Api::new();
    let (node, _) = api.holder(ClientId(42));
    let id = api.net.identity("server-0").node_id().to_string();
    assert_eq!(text(&api, "read", &["ls"]), format!("{id} game-node\n"));
    assert_eq!(json(&api, "read", &["ls"])["nodes"][0]["node"], id);
    assert_eq!(text(&api, "read", &["who"]), format!("42 {id}\n"));
    assert_eq!(text(&api, "read", &["who", "42"]), format!("42 {id}\n"));
    assert_eq!(
        json(&api, "read", &["who", "42"])["players"][0]["player"],
        "42"
    );
    let nobody = run(&api, "read", &["who", "43"]);
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
    assert_eq!(json(&api, "read", &["health"])["status"], "up");
    assert_eq!(json(&api, "read", &["health"])["health"], "ok");
    let metrics = text(&api, "metrics", &["metrics"]);
    assert!(metrics.contains("tickwire_hub_players 1\n"), "{metrics}");
    let kicked = run(&api, "admin", &["kick", "42", "bye"]);
    assert_eq!(kicked.status.code(), Some(0), "{kicked:?}");
    let offline = run(&api, "admin", &["kick", "43"]);
    assert_eq!(offline.status.code(), Some(1), "{offline:?}");
    let refused = run(&api, "read", &["drain", "--json"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let error: Value = serde_json::from_slice(&refused.stderr).unwrap();
    assert_eq!(error["code"], 4);
    drop(node);
}

#[test]
fn ha4_mail_is_sent_listed_acknowledged_and_cleared_by_commands() {
    let api = Api::new();
    for body in ["one", "two\u{1b}[2J", "three"] {
        assert_eq!(text(&api, "write", &["mail", "send", "42", body]), "");
    }
    let list = text(&api, "read", &["mail", "ls", "42"]);
    assert!(
        list.contains("one\n") && list.contains("two\\u{1b}[2J\n"),
        "{list}"
    );
    let mails = json(&api, "read", &["mail", "ls", "42"]);
    let mails = mails["mails"].as_array().unwrap();
    assert_eq!(mails.len(), 3);
    let second = mails[1]["seq"].to_string();
    text(&api, "write", &["mail", "ack", "42", &second]);
    let left = text(&api, "read", &["mail", "ls", "42"]);
    assert_eq!(left.lines().count(), 1, "{left}");
    let cleared = json(&api, "write", &["mail", "clear", "42"]);
    assert_eq!(cleared, json!({"deleted": 1}));
}

#[test]
fn ha4_keys_are_set_swapped_listed_watched_and_deleted_by_commands() {
    let api = Api::new();
    let put = |words: &[&str]| text(&api, "write", words).trim().to_owned();
    let first = put(&["kv", "put", "zone/7", "one"]);
    let stale = run(
        &api,
        "write",
        &["kv", "cas", "zone/7", "x", "--revision", "0"],
    );
    assert_eq!(stale.status.code(), Some(4), "{stale:?}");
    assert!(
        String::from_utf8_lossy(&stale.stderr).contains(&first),
        "{stale:?}"
    );
    let second = put(&["kv", "cas", "zone/7", "two\u{1b}[2J", "--revision", &first]);
    assert_eq!(
        text(&api, "read", &["kv", "get", "zone/7"]),
        "two\u{1b}[2J\n"
    );
    put(&["kv", "put", "other", "x", "--durability", "memory"]);
    let list = text(&api, "read", &["kv", "range", "zone/"]);
    assert_eq!(list, format!("zone/7 {second} two\\u{{1b}}[2J\n"));
    let all = json(&api, "read", &["kv", "range"]);
    assert_eq!(all["entries"].as_array().unwrap().len(), 2);
    let watched = text(&api, "read", &["kv", "watch", "zone/", "--count", "3"]);
    let events = watched.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["event"].as_str().unwrap().to_owned()
    });
    assert_eq!(events.collect::<Vec<_>>(), ["reset", "key", "complete"]);
    let stale = run(
        &api,
        "write",
        &["kv", "delete", "zone/7", "--revision", &first],
    );
    assert_eq!(stale.status.code(), Some(4), "{stale:?}");
    put(&["kv", "delete", "zone/7", "--revision", &second]);
    let none = run(&api, "read", &["kv", "get", "zone/7"]);
    assert_eq!(none.status.code(), Some(1), "{none:?}");
}

#[test]
fn ha4_watch_prints_messages_and_ends_at_its_count() {
    let api = Api::new();
    let (_node, _) = api.holder(ClientId(42));
    let lines = text(&api, "read", &["watch", "--count", "4"]);
    let events: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].clone())
        .collect();
    assert_eq!(events, ["reset", "node", "player", "complete"]);
    let refused = run(&api, "metrics", &["watch"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
}

#[test]
fn ha4_drain_by_http_ends_the_hub_with_0() {
    let mut net = Net::new();
    for role in ROLES {
        new_key(&net, role);
    }
    let (hub, address) = hub_process(&mut net);
    let node = Talker::start(&net, "server-0");
    node.wait_joined();
    node.tell(NodeRequest::Claim(ClientId(42)));
    let headers = [("Authorization", bearer(&net, "admin"))];
    let headers = headers
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let drained = ask(address, "POST /v1/drain", &headers, "");
    assert_eq!((drained.status, drained.text("status")), (202, "draining"));
    assert_eq!(hub.wait_end(), Some(0));
}

#[test]
fn ha2_sighup_reads_the_keys_again() {
    let mut net = Net::new();
    new_key(&net, "read");
    let (hub, address) = hub_process(&mut net);
    new_key(&net, "admin");
    let admin = bearer(&net, "admin");
    let status = || ask(address, "GET /metrics", &[("Authorization", &admin)], "").status;
    assert_eq!(status(), 401);
    hub.signal("-HUP");
    until("the new key is known", || (status() == 200).then_some(()));
    // A file with an error changes nothing.
    let keys = net.path("hub.keys");
    let text = std::fs::read_to_string(&keys).unwrap();
    std::fs::write(&keys, format!("{text}nonsense\n")).unwrap();
    hub.signal("-HUP");
    until("the error is logged", || {
        let log = std::fs::read_to_string(net.path("hub.log")).unwrap();
        log.contains("the API's files are not reloaded")
            .then_some(())
    });
    // A busy hub answers 503 or 504 meanwhile; only 401 would mean that the key is gone.
    until("the key is still valid", || {
        let status = status();
        assert_ne!(status, 401);
        (status == 200).then_some(())
    });
    hub.kill();
}

#[test]
fn ha2_tls_serves_a_certificate_that_clients_verify() {
    let (chain, key, other) = certificates();
    let mut files = None;
    let api = {
        let folder = std::env::temp_dir().join(format!("tickwire-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let paths = ["chain.pem", "key.pem", "other.pem"].map(|name| folder.join(name));
        std::fs::write(&paths[0], &chain).unwrap();
        std::fs::write(&paths[1], &key).unwrap();
        std::fs::write(&paths[2], &other).unwrap();
        std::fs::set_permissions(&paths[1], std::fs::Permissions::from_mode(0o600)).unwrap();
        files.replace((folder, paths.clone()));
        Api::tls(CertificateFiles {
            chain: paths[0].clone(),
            key: paths[1].clone(),
        })
    };
    let (folder, [ca, _, other]) = files.unwrap();
    let address = format!("localhost:{}", api.address.port());
    let health = |words: &[&str]| {
        let command = ["hub", "health", "--http", &address];
        tickwire().args(command).args(words).output().unwrap()
    };
    let up = until("the API is up", || {
        let up = health(&["--ca", ca.to_str().unwrap()]);
        up.status.success().then_some(up)
    });
    assert!(!up.stdout.is_empty());
    let distrusted = health(&["--ca", other.to_str().unwrap()]);
    assert_eq!(distrusted.status.code(), Some(3), "{distrusted:?}");
    let plain = health(&[]);
    assert_eq!(plain.status.code(), Some(3), "{plain:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The PEM of a certificate for localhost, of its key, and of another certificate.
pub(super) fn certificates() -> (String, String, String) {
    let one = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = |kind: &str, der: &[u8]| {
        use base64ct::Encoding as _;
        let text = base64ct::Base64::encode_string(der);
        let lines: Vec<&str> = text
            .as_bytes()
            .chunks(64)
            .map(|line| str::from_utf8(line).unwrap())
            .collect();
        format!(
            "-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n",
            lines.join("\n")
        )
    };
    (
        pem("CERTIFICATE", one.cert.der()),
        pem("PRIVATE KEY", &one.signing_key.serialize_der()),
        pem("CERTIFICATE", other.cert.der()),
    )
}

fn folder_command(words: &[&str]) -> Output {
    tickwire().arg("hub").args(words).output().unwrap()
}

#[test]
fn ha5_a_backup_of_a_running_hub_restores_acknowledged_mail() {
    let mut net = Net::new();
    for role in ROLES {
        new_key(&net, role);
    }
    let (hub, address) = hub_process(&mut net);
    let write = bearer(&net, "write");
    for number in 0..20 {
        until("a mail is stored", || {
            let headers = [("Authorization", write.as_str())];
            let sent = ask(address, "POST /v1/mail/42", &headers, &number.to_string());
            (sent.status == 201).then_some(())
        });
    }
    let [data, copy] = ["data", "backup"].map(|name| net.path(name));
    let [data, copy] = [&data, &copy].map(|path| path.to_str().unwrap());
    let made = folder_command(&["backup", "--data", data, "--to", copy, "--json"]);
    assert!(made.status.success(), "{made:?}");
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["mails"], 20);
    let again = folder_command(&["backup", "--data", data, "--to", copy]);
    assert_eq!(again.status.code(), Some(4), "{again:?}");
    hub.kill();
    std::fs::remove_dir_all(data).unwrap();
    let restored = folder_command(&["restore", "--from", copy, "--data", data]);
    assert!(restored.status.success(), "{restored:?}");
    let (hub, address) = hub_process(&mut net);
    let read = bearer(&net, "read");
    let page = ask(address, "GET /v1/mail/42", &[("Authorization", &read)], "");
    assert_eq!(page.json["mails"].as_array().unwrap().len(), 20);
    hub.kill();
}

#[test]
fn ha5_marks_of_a_lost_log_hide_no_mail_after_a_restore() {
    let mut net = Net::new();
    for role in ROLES {
        new_key(&net, role);
    }
    let (hub, address) = hub_process(&mut net);
    let write = bearer(&net, "write");
    let send = |address, body: &str| {
        until("a mail is stored", || {
            let headers = [("Authorization", write.as_str())];
            let sent = ask(address, "POST /v1/mail/42", &headers, body);
            (sent.status == 201).then_some(())
        });
    };
    let [data, copy] = ["data", "backup"].map(|name| net.path(name));
    let [data, copy] = [&data, &copy].map(|path| path.to_str().unwrap());
    let made = folder_command(&["backup", "--data", data, "--to", copy]);
    assert!(made.status.success(), "{made:?}");
    // The backup has none of the mails that this node receives.
    let node = Talker::start(&net, "server-0");
    node.wait_joined();
    node.tell(NodeRequest::Claim(ClientId(42)));
    for number in 0..5 {
        let sent = format!("lost {number}");
        send(address, &sent);
        assert_eq!(next_mail(&node), sent.as_bytes());
    }
    hub.kill();
    std::fs::remove_dir_all(data).unwrap();
    let restored = folder_command(&["restore", "--from", copy, "--data", data]);
    assert!(restored.status.success(), "{restored:?}");
    let (hub, address) = hub_process(&mut net);
    // It has the number of the first lost one.
    send(address, "new");
    assert_eq!(next_mail(&node), b"new");
    hub.kill();
}

#[test]
fn ha4_hub_8_purge_counts_and_deletes_the_mail_of_one_node() {
    let api = Api::new();
    let node = Talker::start(&api.net, "server-0");
    node.wait_joined();
    for player in 1..=3 {
        node.tell(NodeRequest::Mail(ClientId(player), "flood".into()));
        while !matches!(node.next(), NodeEvent::MailStored(_)) {}
    }
    assert_eq!(api.ask("write", "POST /v1/mail/1", "kept").status, 201);
    let from = api.net.identity("server-0").node_id().to_string();
    let words = ["purge", "--from", &from];
    let dry = [&words[..], &["--dry-run"]].concat();
    let found = json(&api, "read", &dry);
    assert_eq!(
        (&found["mails"], &found["deleted"]),
        (&json!(3), &json!(false))
    );
    let refused = run(&api, "write", &words);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(text(&api, "admin", &words).starts_with("deleted 3 mails, "));
    assert!(text(&api, "read", &dry).starts_with("found 0 mails, "));
    let left = json(&api, "read", &["mail", "ls", "1"]);
    assert_eq!(left["mails"].as_array().map(Vec::len), Some(1));
    assert_eq!(json(&api, "read", &["mail", "ls", "2"])["mails"], json!([]));
}

fn next_mail(node: &Talker) -> Vec<u8> {
    loop {
        if let NodeEvent::Mail { body, .. } = node.next() {
            return body.0.to_vec();
        }
    }
}

#[test]
fn ha5_a_check_finds_damage_and_changes_nothing() {
    let mut net = Net::new();
    let hub = net.hub_process();
    let node = Talker::start(&net, "server-0");
    node.wait_joined();
    node.tell(NodeRequest::Mail(ClientId(1), "kept".into()));
    while !matches!(node.next(), NodeEvent::MailStored(_)) {}
    hub.kill();
    let data = net.path("data");
    let words = ["check", "--data", data.to_str().unwrap(), "--json"];
    let before = crate::net::bytes_under(&data);
    let intact = folder_command(&words);
    assert!(intact.status.success(), "{intact:?}");
    let found: Value = serde_json::from_slice(&intact.stdout).unwrap();
    assert_eq!(
        (&found["mails"], &found["corrupt_ranges"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(crate::net::bytes_under(&data), before, "nothing is changed");

    let first = data.join("0000000000000001.seg");
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[20] ^= 0xff;
    std::fs::write(&first, bytes).unwrap();
    let damaged = folder_command(&words);
    assert_eq!(damaged.status.code(), Some(1), "{damaged:?}");
    let none = folder_command(&["check", "--data", "/nonexistent"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}
