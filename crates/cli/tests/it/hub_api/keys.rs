//! Keys over HTTP: leases, and `/v1/watch?kind=keys`.

use std::time::Duration;

use serde_json::{Value, json};

use super::watch::Socket;
use super::{Api, base64, bearer, hub_process, new_key};
use crate::http::ask;
use crate::net::{Net, until};

fn put(api: &Api, key: &str, value: &str) -> String {
    let written = api.ask("write", &format!("PUT /v1/kv/{key}"), value);
    assert_eq!(written.status, 200, "{written:?}");
    written.text("revision").to_owned()
}

/// Key, value and revision of a message.
fn change(message: &Value) -> (&str, &Value, &str) {
    assert_eq!(message["event"], "key", "{message}");
    let text = |field: &str| message[field].as_str().unwrap();
    (text("key"), &message["value"], text("revision"))
}

#[test]
fn ha3_a_watch_of_keys_has_a_snapshot_changes_and_resumes() {
    let api = Api::new();
    for number in 0..300 {
        put(&api, &format!("zone/{number:03}"), "old");
    }
    let last = put(&api, "other", "x");
    let read = bearer(&api.net, "read");
    let open = |query: &str| Socket::open(api.address, &read, query).ok().unwrap();
    let mut socket = open("?kind=keys&prefix=zone/");
    let (all, revision) = socket.snapshot();
    assert_eq!(all.len(), 300);
    assert_eq!(change(&all[7]).0, "zone/007");
    assert_eq!(change(&all[7]).1, &base64(b"old"));
    assert!(revision.parse::<u64>().unwrap() >= last.parse().unwrap());

    put(&api, "other", "y");
    let written = put(&api, "zone/7", "new");
    let seen = socket.next();
    assert_eq!(change(&seen), ("zone/7", &base64(b"new"), &written[..]));
    api.ask("write", "DELETE /v1/kv/zone/7", "");
    assert_eq!(change(&socket.next()).1, &Value::Null);
    drop(socket);

    let mut socket = open(&format!("?kind=keys&prefix=zone/&from={written}"));
    assert_eq!(change(&socket.next()).1, &Value::Null, "only what follows");
    // Of a log that has not come so far.
    let mut socket = open("?kind=keys&prefix=zone/&from=18446744073709551615");
    assert_eq!(socket.snapshot().0.len(), 300);
    for query in [
        "?kind=keys&from=x",
        "?kind=keys&prefix=a%20b",
        "?prefix=zone/",
    ] {
        assert_eq!(
            Socket::open(api.address, &read, query).err(),
            Some(400),
            "{query}"
        );
    }
}

#[test]
fn ha3_a_watch_of_keys_resumes_after_a_restart_of_the_hub() {
    let mut net = Net::new();
    for role in ["write", "read"] {
        new_key(&net, role);
    }
    let put = |net: &Net, address, value: &str| {
        let write = bearer(net, "write");
        let headers = [("Authorization", write.as_str())];
        until("the API has its link", || {
            let written = ask(address, "PUT /v1/kv/zone/7", &headers, value);
            (written.status != 503).then(|| written.text("revision").to_owned())
        })
    };
    let (hub, address) = hub_process(&mut net);
    let seen = put(&net, address, "one");
    put(&net, address, "two");
    hub.kill();
    let (hub, address) = hub_process(&mut net);
    put(&net, address, "three");
    let read = bearer(&net, "read");
    let query = format!("?kind=keys&prefix=zone/&from={seen}");
    let mut socket = Socket::open(address, &read, &query).ok().unwrap();
    // The hub has no changes of before its start: the client gets the state.
    let (all, _) = socket.snapshot();
    assert_eq!(
        all.iter().map(|it| change(it).1).collect::<Vec<_>>(),
        [&base64(b"three")]
    );
    hub.kill();
}

#[test]
fn ha3_key_watches_max_is_a_limit() {
    let api = Api::new();
    let read = bearer(&api.net, "read");
    let open = || Socket::open(api.address, &read, "?kind=keys");
    let mut sockets: Vec<Socket> = (0..64).map(|_| open().ok().unwrap()).collect();
    assert_eq!(open().err(), Some(503));
    for socket in &mut sockets {
        socket.snapshot();
    }
    drop(sockets);
    until("the places are free again", || open().ok());
}

#[test]
fn ha6_a_lease_ends_with_its_keys_unless_it_is_renewed() {
    let api = Api::new();
    let grant = |query: &str| api.ask("write", &format!("POST /v1/leases{query}"), "");
    let granted = grant("?ttl=2");
    assert_eq!((granted.status, &granted.json["ttl"]), (201, &json!(2)));
    let lease = granted.text("lease").to_owned();
    put(&api, &format!("zone/7?lease={lease}"), "server 3");
    let other = grant("").text("lease").to_owned();
    put(&api, &format!("zone/8?lease={other}"), "server 4");
    let read = |key: &str| api.ask("read", &format!("GET /v1/kv/{key}"), "").status;
    let renew = || api.ask("write", &format!("POST /v1/leases/{lease}/renew"), "");
    // Longer than the lease.
    let (_open, never) = std::sync::mpsc::channel::<()>();
    for _ in 0..6 {
        never.recv_timeout(Duration::from_millis(500)).unwrap_err();
        assert_eq!(renew().status, 200);
    }
    assert_eq!(read("zone/7"), 200);
    until("the key is gone", || (read("zone/7") == 404).then_some(()));
    renew().assert_refused(404, "no_lease");
    api.ask("write", &format!("PUT /v1/kv/zone/7?lease={lease}"), "x")
        .assert_refused(404, "no_lease");
    assert_eq!(read("zone/8"), 200);

    let ended = api.ask("write", &format!("DELETE /v1/leases/{other}"), "");
    assert_eq!((ended.status, &ended.json["ttl"]), (200, &json!(0)));
    until("its key is gone", || (read("zone/8") == 404).then_some(()));
    for query in ["?ttl=0", "?ttl=86401", "?ttl=x"] {
        grant(query).assert_refused(400, "bad_query");
    }
}

#[test]
fn ha6_leases_end_with_the_process_and_their_keys_soon_after() {
    let mut net = Net::new();
    new_key(&net, "write");
    let write = bearer(&net, "write");
    let headers = [("Authorization", write.as_str())];
    let (hub, address) = hub_process(&mut net);
    let granted = until("the API has its link", || {
        let granted = ask(address, "POST /v1/leases?ttl=3600", &headers, "");
        (granted.status == 201).then_some(granted)
    });
    let lease = granted.text("lease");
    until("the key is set", || {
        let line = format!("PUT /v1/kv/zone/7?lease={lease}");
        (ask(address, &line, &headers, "x").status == 200).then_some(())
    });
    hub.kill();
    let (hub, address) = hub_process(&mut net);
    until("the run of the new process has replaced it", || {
        let read = ask(address, "GET /v1/kv/zone/7", &headers, "");
        (read.status == 404).then_some(())
    });
    let line = format!("POST /v1/leases/{lease}/renew");
    ask(address, &line, &headers, "").assert_refused(404, "no_lease");
    hub.kill();
}

#[test]
fn ha3_a_watcher_of_keys_that_reads_nothing_is_closed_and_counted() {
    let api = Api::with(|config| {
        config.write_timeout = Duration::from_millis(200);
        config.ping_interval = Duration::from_secs(3_600);
    });
    let read = bearer(&api.net, "read");
    let _silent = Socket::open(api.address, &read, "?kind=keys").ok().unwrap();
    let value = "x".repeat(60_000);
    until("the watcher is closed", || {
        for number in 0..20 {
            put(&api, &format!("k{number}?durability=memory"), &value);
        }
        (api.metric("tickwire_hub_http_watches_too_slow_total") == 1).then_some(())
    });
    assert_eq!(api.metric("tickwire_hub_http_watches "), 0);
}
