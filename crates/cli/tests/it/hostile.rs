//! Hostile input at the HTTP port causes an error or a closed connection, nothing else.

mod timeouts;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use daemon::edge::Transport;
use serde_json::Value;
use wire::Seed;

use crate::http::{Answer, HeldTicket, about, ask, held, post, raw, request, submit};
use crate::net::{Net, PATIENCE, edge, quick, until};
use crate::server::Server;

#[test]
fn invalid_requests_get_an_error_code() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    for body in ["{", "junk", "[1", "\u{0}"] {
        post(edge, body).assert_refused(400, "malformed_json");
    }
    for body in [
        "[]",
        "{}",
        r#"{"client_id":5}"#,
        r#"{"client_id":"5","extra":1}"#,
    ] {
        post(edge, body).assert_refused(400, "malformed_json");
    }
    for user in ["0", "zz", &"00".repeat(513)] {
        let body = format!(r#"{{"client_id":"5","user":"{user}"}}"#);
        post(edge, &body).assert_refused(400, "bad_user");
    }
    post(edge, &"x".repeat(4_097)).assert_refused(413, "body_too_large");
    ask(edge, "POST /v1/tickets", &[], "{}").assert_refused(415, "not_json");
    let json = ("Content-Type", "application/json; charset=utf-8");
    ask(
        edge,
        "POST /v1/tickets",
        &[json, ("Idempotency-Key", "once")],
        r#"{"client_id":"5"}"#,
    )
    .assert_refused(400, "bad_idempotency_key");

    let held = submit(edge, 5);
    for wait in ["31", "-1", "abc", "", "5m", "99999999999999999999"] {
        let rest = format!("?wait={wait}");
        about(edge, "GET", &held, &rest).assert_refused(400, "bad_wait");
    }
    about(edge, "GET", &held, "?speed=1").assert_refused(400, "bad_wait");
    ask(
        edge,
        "GET /v1/tickets/5",
        &[("Authorization", "Bearer x")],
        "",
    )
    .assert_refused(400, "bad_ticket_id");
    ask(edge, "GET /", &[], "").assert_refused(404, "no_route");
    ask(edge, "GET /v2/tickets", &[], "").assert_refused(404, "no_route");
    ask(edge, "PUT /v1/tickets", &[], "").assert_refused(405, "no_method");
    assert_eq!(ask(edge, "GET /v1/status", &[], "").status, 200);
}

#[test]
fn non_canonical_numbers_and_invalid_paths_are_rejected() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let zeros = format!("{}1", "0".repeat(500));
    for id in [
        "",
        "-1",
        "abc",
        "+1",
        "01",
        "00",
        " 1",
        "1 ",
        "1_0",
        "\u{0661}",
        zeros.as_str(),
        "18446744073709551616",
    ] {
        let body = format!(r#"{{"client_id":"{id}"}}"#);
        post(edge, &body).assert_refused(400, "bad_client_id");
    }
    // Each id in its canonical form, up to the largest.
    for id in ["0", "10", "18446744073709551615"] {
        let answer = post(edge, &format!(r#"{{"client_id":"{id}"}}"#));
        assert_eq!(answer.status, 201, "{id}");
    }

    let held = submit(edge, 5);
    for wait in ["+1", "01", "00"] {
        about(edge, "GET", &held, &format!("?wait={wait}")).assert_refused(400, "bad_wait");
    }
    for id in ["%00%ff", "%C3%28", "%zz", "%2f"] {
        let key = [("Authorization", "Bearer x")];
        for (method, rest) in [
            ("GET", ""),
            ("GET", "?wait=1"),
            ("DELETE", ""),
            ("POST", "/token"),
        ] {
            ask(edge, &format!("{method} /v1/tickets/{id}{rest}"), &key, "")
                .assert_refused(400, "bad_ticket_id");
        }
    }
}

#[test]
fn malformed_http_closes_the_connection() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let long_line = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(20_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
    let junk: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/tickets HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        long_line.as_bytes(),
        many.as_bytes(),
    ];
    for bytes in junk {
        let answer = String::from_utf8_lossy(&raw(edge, bytes)).into_owned();
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}"
        );
    }
    assert_eq!(ask(edge, "GET /v1/status", &[], "").status, 200);
}

#[test]
fn idle_connections_are_evicted_oldest_first() {
    let net = Net::new();
    let mut config = edge();
    config.connections_max = 2;
    config.read_timeout = PATIENCE;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let mut streams: Vec<_> = (0..4).map(|_| TcpStream::connect(edge).unwrap()).collect();
    for stream in &streams {
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
    }
    // No timeout has expired, so each closed connection was evicted.
    let mut ended = BTreeSet::new();
    until("two are closed", || {
        for (number, stream) in streams.iter_mut().enumerate() {
            if !matches!(stream.read(&mut [0; 16]), Err(error) if is_waiting(&error)) {
                ended.insert(number);
            }
        }
        (ended.len() >= 2).then_some(())
    });
    assert_eq!(ended, [0, 1].into(), "who came last stays");
    for stream in &mut streams[2..] {
        stream
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let error = stream.read(&mut [0; 16]).unwrap_err();
        assert!(is_waiting(&error), "{error}");
    }
}

/// When one source uses all its connections for idle ones of any kind, another client of the same
/// address still gets in.
#[test]
fn idle_connections_that_fill_a_share_block_no_client() {
    let net = Net::new();
    let mut config = edge();
    // No timeout closes one.
    config.read_timeout = PATIENCE;
    let share = config.connections_per_source_max;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let head = "POST /v1/tickets HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    let body = format!("{head}Content-Length: 100\r\n\r\n{{");
    for said in ["", "GET /v1/status HT", &body] {
        let silent: Vec<TcpStream> = (0..share)
            .map(|_| {
                let mut stream = TcpStream::connect(edge).unwrap();
                // It may have been evicted already.
                stream.write_all(said.as_bytes()).ok();
                stream
            })
            .collect();
        for client in 0..20 {
            submit(edge, client);
        }
        drop(silent);
    }
    let counts = counts(edge);
    assert!(counts["evicted"].as_u64().unwrap() >= 3 * 128, "{counts}");
    assert_eq!(counts["connections_refused"], 0, "{counts}");
}

fn is_waiting(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[test]
fn clients_behind_a_trusted_proxy_have_their_own_rate() {
    let net = Net::new();
    let mut config = edge();
    config.requests_per_second = 1;
    config.requests_burst = 3;
    config.waits_per_source_max = 0;
    config.connections_per_source_max = 0;
    config.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let ask_for = |player: &str| ask(edge, "GET /v1/status", &[("X-Forwarded-For", player)], "");
    until("the rate of one is used up", || {
        (ask_for("192.0.2.1").status == 429).then_some(())
    });
    // Its own header is ignored, and other sources are not limited.
    let said = "192.0.2.77, 192.0.2.1";
    until("no other name helps", || {
        (ask_for(said).status == 429).then_some(())
    });
    assert_eq!(ask_for("192.0.2.2").status, 200);
    assert_eq!(ask_for("192.0.2.1, 192.0.2.3").status, 200);
}

#[test]
fn headers_of_untrusted_proxies_are_ignored() {
    let net = Net::new();
    let mut config = edge();
    config.requests_per_second = 1;
    config.requests_burst = 3;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let mut player = 0_u32;
    until("names of others do not help", || {
        player += 1;
        let name = format!("192.0.2.{player}");
        let headers = [
            ("X-Forwarded-For", name.as_str()),
            ("Forwarded", &format!("for={name}")),
        ];
        let answer = ask(matchmaker.address(), "GET /v1/status", &headers, "");
        (answer.status == 429).then_some(())
    });
}

#[test]
fn all_junk_is_counted_by_reason() {
    let mut net = Net::new();
    let _hub = net.hub();
    let mut limits = edge();
    limits.requests_per_second = 1_000_000;
    limits.requests_burst = 1_000_000;
    let matchmaker = net.matchmaker_with(None, quick(), limits);
    let edge = matchmaker.address();
    let _server = Server::start(&net, "server-0");
    let captures = session(edge);
    let before = counts(edge);
    let mut generator = Seed::from_number(14).generator(0);
    let mut below = |bound: usize| usize::try_from(generator.below(bound as u64)).unwrap();
    for kind in 0..3 {
        for _ in 0..10_000 {
            let mut bytes = captures[below(captures.len())].clone();
            match kind {
                0 => {
                    bytes = (0..below(600))
                        .map(|_| u8::try_from(below(256)).unwrap())
                        .collect();
                }
                1 => bytes.truncate(below(bytes.len())),
                _ => {
                    let bit = below(8 * bytes.len());
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
            offer(edge, &bytes);
        }
    }
    // Each status request is one more opened connection and one more request.
    let mut looks = 0;
    let after = until("all connections have ended", || {
        looks += 1;
        let now = counts(edge);
        (now["open"] == 1).then_some(now)
    });
    let of = |name: &str| after[name].as_u64().unwrap() - before[name].as_u64().unwrap();
    assert_eq!(
        of("connections") + of("connections_refused"),
        30_000 + looks
    );
    let ends = ["closed", "bad_http", "too_slow", "cut", "evicted", "open"].map(of);
    assert_eq!(ends.iter().sum::<u64>(), of("connections"), "{after}");
    let words = |counts: &Value| -> u64 {
        let refused = counts["refused"].as_object().unwrap();
        refused.values().map(|count| count.as_u64().unwrap()).sum()
    };
    let refused = words(&after) - words(&before);
    let fates = [of("answered"), of("dropped"), of("asked"), refused];
    assert_eq!(fates.iter().sum::<u64>(), of("requests"), "{after}");
    // Each kind of junk is counted under its error.
    assert!(of("bad_http") > 10_000 && of("cut") > 5_000, "{after}");
    assert!(refused > 1_000, "{after}");
    assert!(after["refused"].as_object().unwrap().len() >= 6, "{after}");
    assert_eq!(after["refused"]["unavailable"], Value::Null);
    submit(edge, 1 << 50);
}

/// Runs a session with the edge; returns its requests.
fn session(edge: SocketAddr) -> Vec<Vec<u8>> {
    let json = [
        ("Content-Type", "application/json"),
        ("Idempotency-Key", &"ab".repeat(16)),
    ];
    let bearer = |held: &HeldTicket| format!("Bearer {}", held.resume_key);
    let mut said = Vec::new();
    let mut send_request = |line: &str, headers: &[(&str, &str)], body: &str| {
        let bytes = request(line, headers, body).into_bytes();
        let answer = Answer::read(raw(edge, &bytes));
        said.push(bytes);
        answer
    };
    let posts = [1, 2].map(|client| {
        let body = format!(r#"{{"client_id":"{client}","user":"00ff"}}"#);
        held(&send_request("POST /v1/tickets", &json, &body))
    });
    let line = |held: &HeldTicket, rest: &str| format!("/v1/tickets/{}{rest}", held.ticket);
    let player = [("Authorization", bearer(&posts[0]))];
    let player = player
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    until("there is a seat", || {
        let answer = about(edge, "GET", &posts[0], "?wait=10");
        (answer.text("state") == "assigned").then_some(())
    });
    let get = format!("GET {}", line(&posts[0], "?wait=10s"));
    assert_eq!(send_request(&get, &player, "").text("state"), "assigned");
    let token = format!("POST {}", line(&posts[0], "/token"));
    send_request(&token, &player, "").assert_refused(429, "too_soon");
    let delete = format!("DELETE {}", line(&posts[0], ""));
    send_request(&delete, &player, "").assert_refused(409, "assigned");
    assert_eq!(send_request("GET /v1/status", &[], "").status, 200);
    said
}

fn counts(edge: SocketAddr) -> Value {
    ask(edge, "GET /v1/status", &[], "").json["edge"].clone()
}

/// Sends bytes, closes the write half, and waits for the end.
fn offer(edge: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(edge).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The edge may close or reset before all is written.
    stream.write_all(bytes).ok();
    stream.shutdown(Shutdown::Write).ok();
    let ended = stream.read_to_end(&mut Vec::new());
    assert!(!ended.is_err_and(|error| is_waiting(&error)), "{bytes:?}");
}

#[test]
fn a_source_has_its_rate() {
    let net = Net::new();
    let mut config = edge();
    config.requests_per_second = 1;
    config.requests_burst = 3;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    // One write, so that the bucket does not refill in between.
    let one = "GET /v1/status HTTP/1.1\r\nHost: e\r\n\r\n";
    let last = "GET /v1/status HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\r\n";
    let bytes = one.repeat(49) + last;
    let answer = String::from_utf8(raw(matchmaker.address(), bytes.as_bytes())).unwrap();
    let refused = answer.matches("HTTP/1.1 429").count();
    let taken = answer.matches("HTTP/1.1 200").count();
    assert_eq!(refused + taken, 50, "{answer}");
    assert!(
        taken >= 3 && refused > 0,
        "{taken} taken, {refused} refused"
    );
    assert!(answer.contains("too_many_requests"));
}

#[test]
fn the_number_of_long_polls_is_bounded() {
    let net = Net::new();
    let mut config = edge();
    config.waits_max = 1;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let held = submit(edge, 1);
    let waiting = {
        let held = held.clone();
        // If it arrives second, it is refused and retries.
        thread::spawn(move || {
            until("the ticket has ended", || {
                let answer = about(edge, "GET", &held, "?wait=30");
                (answer.text("state") == "ended").then_some(())
            });
        })
    };
    let refused = until("the place is taken", || {
        let answer = about(edge, "GET", &held, "?wait=1");
        (answer.status != 200).then_some(answer)
    });
    refused.assert_refused(429, "too_many_waits");
    about(edge, "DELETE", &held, "");
    waiting.join().unwrap();
}

#[test]
fn every_limit_of_one_source_holds() {
    let net = Net::new();
    let mut config = edge();
    config.body_bytes_max = 64;
    config.head_bytes_max = 8_192;
    config.wait_max = Duration::from_secs(2);
    config.waits_per_source_max = 0;
    config.connections_per_source_max = 1;
    assert_eq!(config.transport, Transport::PlainHttp);
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let held = submit(edge, 1);
    // Only one connection is allowed at a time.
    let ask = |rest: &str| until("the place is free", || try_about(edge, &held, rest));
    ask("?wait=3").assert_refused(400, "bad_wait");
    ask("?wait=2").assert_refused(429, "too_many_waits");
    let long = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(9_000));
    let answer = until("the place is free", || {
        let answer = String::from_utf8(raw(edge, long.as_bytes())).unwrap();
        (!answer.is_empty()).then_some(answer)
    });
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let body = format!(r#"{{"client_id":"5","user":"{}"}}"#, "00".repeat(40));
    let head = format!(
        "POST /v1/tickets HTTP/1.1\r\nHost: e\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = until("the place is free", || {
        let answer = String::from_utf8(raw(edge, head.as_bytes())).unwrap();
        (!answer.is_empty()).then_some(answer)
    });
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");

    let mut first = until("the place is free", || {
        let mut stream = TcpStream::connect(edge).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = "GET /v1/status HTTP/1.1\r\nHost: e\r\n\r\n";
        stream.write_all(request.as_bytes()).ok()?;
        // A connection that gets a response has the slot until it is evicted.
        (stream.read(&mut [0; 16]).is_ok_and(|len| len > 0)).then_some(stream)
    });
    assert_eq!(ask("?wait=0").status, 200);
    first.read_to_end(&mut Vec::new()).ok();
}

#[test]
fn a_connection_that_waits_for_its_answer_is_not_evicted() {
    let net = Net::new();
    let mut config = edge();
    config.connections_per_source_max = 2;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let held = submit(edge, 5);
    let waiting = [(); 2].map(|()| {
        let held = held.clone();
        thread::spawn(move || until("a place is free", || try_about(edge, &held, "?wait=3")))
    });
    // A new connection evicts an idle one, so a third may be admitted before both wait. From then
    // on each is refused until the first response.
    until("both have their answers", || {
        try_about(edge, &held, "?wait=0");
        waiting
            .iter()
            .all(thread::JoinHandle::is_finished)
            .then_some(())
    });
    for waiting in waiting {
        let answer = waiting.join().unwrap();
        assert_eq!((answer.status, answer.text("state")), (200, "queued"));
    }
    let counts = until("a place is free", || {
        let answer = raw(edge, b"GET /v1/status HTTP/1.0\r\n\r\n");
        (!answer.is_empty()).then(|| Answer::read(answer).json["edge"].clone())
    });
    assert!(
        counts["connections_refused"].as_u64().unwrap() >= 1,
        "{counts}"
    );
}

/// Sends a ticket request; `None` if the connection was refused.
fn try_about(edge: SocketAddr, held: &HeldTicket, rest: &str) -> Option<Answer> {
    let HeldTicket { ticket, resume_key } = held;
    let request = format!(
        "GET /v1/tickets/{ticket}{rest} HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\
         Authorization: Bearer {resume_key}\r\n\r\n"
    );
    let bytes = raw(edge, request.as_bytes());
    (!bytes.is_empty()).then(|| Answer::read(bytes))
}
