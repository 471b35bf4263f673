//! Clients that hold connections, send slowly or too much, or have no key.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use daemon::exit::Exit;
use daemon::hub_api::ApiConfig;
use daemon::role::hub::{HubOptions, HubProcess};

use super::{Api, bearer, hub_process, new_key};
use crate::http::{ask, raw};
use crate::net::{Net, PATIENCE, until};

#[test]
fn ha2_idle_connections_are_bounded_and_keep_no_request_out() {
    const MAX: usize = 64;
    let api = Api::with(|config| {
        config.connections_max = MAX;
        config.connections_per_source_max = MAX;
    });
    let mut idle: Vec<TcpStream> = Vec::new();
    for round in 1..=5 {
        // Fewer than the backlog of the listener; this side closes none.
        for _ in 0..60 {
            idle.push(TcpStream::connect(api.address).unwrap());
        }
        let page = api.ask("read", "GET /v1/presence", "");
        assert_eq!(page.status, 200, "round {round}");
    }
    let open = api.metric("tickwire_hub_http_connections_open ");
    assert!(open <= MAX as u64, "{open}");
    let evicted = api.metric("tickwire_hub_http_connections_evicted_total ");
    assert!(evicted >= (idle.len() - MAX) as u64, "{evicted}");
}

#[test]
fn ha2_clients_that_begin_no_handshake_are_bounded_for_each_source() {
    const MAX: usize = 16;
    let (chain, key, _) = super::command::certificates();
    let folder = Net::new();
    let files = [("chain.pem", chain), ("key.pem", key)].map(|(name, text)| {
        let path = folder.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    });
    let [chain, key] = files;
    let api = Api::start(|config| {
        config.certificate = Some(daemon::hub_api::CertificateFiles { chain, key });
        config.connections_per_source_max = MAX;
        config.read_timeout = Duration::from_secs(3_600);
    });
    let mut idle: Vec<TcpStream> = Vec::new();
    for _ in 0..20 {
        idle.extend((0..10).map(|_| TcpStream::connect(api.address).unwrap()));
    }
    let is_closed = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).unwrap();
        !matches!(stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    until("all but the newest are closed", || {
        let closed = idle
            .iter_mut()
            .map(is_closed)
            .filter(|closed| *closed)
            .count();
        (closed >= idle.len() - MAX).then_some(())
    });
    assert!(!is_closed(idle.last_mut().unwrap()));
}

#[test]
fn ha2_a_client_that_sends_a_byte_now_and_then_is_cut() {
    let api = Api::with(|config| config.read_timeout = Duration::from_millis(300));
    let write = bearer(&api.net, "write");
    let head = format!(
        "POST /v1/mail/42 HTTP/1.1\r\nHost: hub\r\nAuthorization: {write}\r\nContent-Length: 99\r\n\r\n"
    );
    // A head, and then a body, that never end.
    for (at_once, what) in [("", "head"), (&head[..], "body")] {
        let mut stream = TcpStream::connect(api.address).unwrap();
        let pause = Duration::from_millis(30);
        stream.set_read_timeout(Some(pause)).unwrap();
        stream.write_all(at_once.as_bytes()).unwrap();
        let rest = if at_once.is_empty() {
            &head[..]
        } else {
            "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        };
        let mut bytes = rest.bytes();
        until(what, || {
            let Some(byte) = bytes.next() else {
                panic!("the {what} was read to its end");
            };
            if let Err(error) = stream.write_all(&[byte]) {
                return Some(error);
            }
            // The pause until the next byte.
            match stream.read(&mut [0; 1_024]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
                Err(error) => Some(error),
                Ok(_) => Some(std::io::ErrorKind::UnexpectedEof.into()),
            }
        });
    }
    assert_eq!(
        api.ask("read", "GET /v1/mail/42", "").json["mails"],
        serde_json::json!([])
    );
}

#[test]
fn ha2_slow_heads_bodies_and_long_bodies_are_refused() {
    let api = Api::with(|config| {
        config.read_timeout = Duration::from_millis(200);
        config.head_bytes_max = 8_192;
    });
    // A head without an end.
    let answer = raw(api.address, b"GET /v1/health HTTP/1.1\r\nHost: hub\r\n");
    assert!(answer.is_empty(), "{answer:?}");
    // A body that does not arrive.
    let write = bearer(&api.net, "write");
    let slow = format!(
        "POST /v1/mail/42 HTTP/1.1\r\nHost: hub\r\nAuthorization: {write}\r\nContent-Length: 9\r\n\r\nab"
    );
    let answer = crate::http::Answer::read(raw(api.address, slow.as_bytes()));
    answer.assert_refused(408, "too_slow");
    let long = "x".repeat(64 << 10 | 1);
    api.ask("write", "POST /v1/mail/42", &long)
        .assert_refused(413, "body_too_large");
    api.ask("admin", "POST /v1/players/42/kick", &"x".repeat(257))
        .assert_refused(413, "body_too_large");
    let most = "x".repeat(64 << 10);
    assert_eq!(api.ask("write", "POST /v1/mail/42", &most).status, 201);
    let head = format!(
        "GET /v1/health HTTP/1.1\r\nX: {}\r\n\r\n",
        "x".repeat(9_000)
    );
    let answer = String::from_utf8(raw(api.address, head.as_bytes())).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert!(api.metric("tickwire_hub_http_connections_too_slow_total ") >= 1);
}

#[test]
fn ha2_a_client_that_reads_no_response_is_cut() {
    let api = Api::with(|config| config.write_timeout = Duration::from_millis(200));
    let mut stream = TcpStream::connect(api.address).unwrap();
    let request = "GET /v1/openapi.json HTTP/1.1\r\nHost: hub\r\n\r\n";
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    // Pipelined until the server has cut it.
    while stream.write_all(request.as_bytes()).is_ok() {}
    until("it is counted", || {
        (api.metric("tickwire_hub_http_connections_too_slow_total ") == 1).then_some(())
    });
}

#[test]
fn ha2_wrong_keys_are_limited_by_source_and_valid_ones_pass() {
    let api = Api::with(|config| {
        config.failures_per_second = 1;
        config.failures_burst = 3;
    });
    let wrong = format!("Bearer {}", "0".repeat(64));
    let ask = |bearer: &str| {
        ask(
            api.address,
            "GET /v1/presence",
            &[("Authorization", bearer)],
            "",
        )
    };
    for _ in 0..3 {
        ask(&wrong).assert_refused(401, "no_key");
    }
    let limited = until("the limit is reached", || {
        let answer = ask(&wrong);
        (answer.status == 429).then_some(answer)
    });
    assert!(limited.head.contains("retry-after: 1"), "{limited:?}");
    assert_eq!(ask(&bearer(&api.net, "read")).status, 200);
}

#[test]
fn ha2_key_files_that_others_may_read_are_refused() {
    let mut net = Net::new();
    new_key(&net, "read");
    let keys = net.path("hub.keys");
    let text = std::fs::read_to_string(&keys).unwrap();
    let token = bearer(&net, "read");
    assert!(
        !text.contains(token.trim_start_matches("Bearer ")),
        "only its digest"
    );
    let mode = |mode| {
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for path in [&keys, &net.path("read.token")] {
        let found = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(found & 0o777, 0o600, "{path:?}");
    }
    mode(0o640);
    net.free_hub_port();
    let (identity, data) = (net.identity("hub"), net.path("data"));
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut options = HubOptions::new(&identity, net.join_file(), &data);
    options.api = Some(ApiConfig::new(listen, keys.clone(), None));
    let failure = until("the port is given up", || {
        let mut options = HubOptions::new(&identity, net.join_file(), &data);
        options.api = Some(ApiConfig::new(listen, keys.clone(), None));
        let failure = HubProcess::start(options).map(drop).unwrap_err();
        (failure.exit == Exit::Usage).then_some(failure)
    });
    assert!(
        failure
            .sentence
            .ends_with("others may read the API's keys (mode 640); chmod 600 it"),
        "{failure}"
    );
    mode(0o600);
    options.api = Some(ApiConfig::new("0.0.0.0:0".parse().unwrap(), keys, None));
    let failure = HubProcess::start(options).map(drop).unwrap_err();
    assert_eq!(
        failure.exit,
        Exit::Usage,
        "plain HTTP for other hosts: {failure}"
    );
}

#[test]
fn ha2_a_hub_without_descriptors_answers_again_once_it_has_some() {
    let mut net = Net::new();
    new_key(&net, "read");
    let (hub, address) = hub_process(&mut net);
    // Fewer than the connections that follow.
    let id = hub.id().to_string();
    let limited = std::process::Command::new("prlimit")
        .args(["--pid", &id, "--nofile=64:64"])
        .status();
    assert!(limited.unwrap().success());
    let mut held: Vec<TcpStream> = (0..200)
        .filter_map(|_| TcpStream::connect(address).ok())
        .collect();
    let mut last = held.pop().unwrap();
    last.set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    last.write_all(b"GET /v1/health HTTP/1.1\r\nHost: hub\r\n\r\n")
        .unwrap();
    assert!(last.read(&mut [0; 16]).is_err(), "no descriptor is left");
    drop(held);
    drop(last);
    let read = bearer(&net, "read");
    until("requests are answered again", || {
        let answer = ask(address, "GET /v1/presence", &[("Authorization", &read)], "");
        (answer.status == 200).then_some(())
    });
    hub.signal("-TERM");
    assert_eq!(hub.wait_end(), Some(0));
}
