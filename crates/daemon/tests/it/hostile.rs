//! Whatever comes to the HTTP port: a clear error or the end of the connection, and no more.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use daemon::edge::Transport;

use crate::http::{Answer, Held, about, ask, post, raw, submit};
use crate::net::{Net, PATIENCE, edge, quick, until};

#[test]
fn what_is_not_understood_is_refused_in_words() {
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
    for id in ["", "-1", "abc", "18446744073709551616"] {
        let body = format!(r#"{{"client_id":"{id}"}}"#);
        post(edge, &body).assert_refused(400, "bad_client_id");
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
fn what_is_no_http_ends_its_connection() {
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
fn who_says_nothing_is_let_go_and_who_comes_in_crowds_waits_outside() {
    let net = Net::new();
    let mut config = edge();
    config.connections_max = 2;
    config.read_timeout = Duration::from_millis(300);
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let mut silent: Vec<_> = (0..4).map(|_| TcpStream::connect(edge).unwrap()).collect();
    silent[0].write_all(b"POST /v1/tickets HT").unwrap();
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Two are closed at once, two when their time is over.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).ok();
    }
    // A body that does not come is not waited for either.
    until("a place is free", || {
        let mut stream = TcpStream::connect(edge).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = "POST /v1/tickets HTTP/1.1\r\nHost: e\r\nContent-Type: application/json\r\n\
                    Content-Length: 30\r\n\r\n{";
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok();
        answer.contains("too_slow").then_some(())
    });
}

#[test]
fn a_source_has_its_rate() {
    let net = Net::new();
    let mut config = edge();
    config.requests_per_second = 1;
    config.requests_burst = 3;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    // Sent at once, so that nothing is earned between them.
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
fn as_many_wait_as_may() {
    let net = Net::new();
    let mut config = edge();
    config.waits_max = 1;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let held = submit(edge, 1);
    let waiting = {
        let held = held.clone();
        // Where it comes second it is refused, and asks again.
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
    // One connection at a time: each of these waits for the end of the one before.
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

    let first = until("the place is free", || {
        let mut stream = TcpStream::connect(edge).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = "GET /v1/status HTTP/1.1\r\nHost: e\r\n\r\n";
        stream.write_all(request.as_bytes()).ok()?;
        // Whoever is answered has the place, and keeps it.
        (stream.read(&mut [0; 16]).is_ok_and(|len| len > 0)).then_some(stream)
    });
    assert!(raw(edge, b"GET /v1/status HTTP/1.1\r\nHost: e\r\n\r\n").is_empty());
    drop(first);
}

/// Asks about a ticket; `None` where the connection was not let in.
fn try_about(edge: SocketAddr, held: &Held, rest: &str) -> Option<Answer> {
    let Held { ticket, resume_key } = held;
    let request = format!(
        "GET /v1/tickets/{ticket}{rest} HTTP/1.1\r\nHost: e\r\nConnection: close\r\n\
         Authorization: Bearer {resume_key}\r\n\r\n"
    );
    let bytes = raw(edge, request.as_bytes());
    (!bytes.is_empty()).then(|| Answer::read(bytes))
}
