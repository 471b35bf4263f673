//! Timeouts of the edge: clients that send nothing, read nothing, or never end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::{counts, is_waiting};
use crate::http::{Answer, HeldTicket, ask, raw, submit};
use crate::net::{Net, PATIENCE, edge, quick, until};

#[test]
fn silent_clients_time_out() {
    let net = Net::new();
    let mut config = edge();
    config.read_timeout = Duration::from_millis(300);
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let mut silent = [(); 2].map(|()| TcpStream::connect(edge).unwrap());
    silent[0].write_all(b"POST /v1/tickets HT").unwrap();
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(!ended.is_err_and(|error| is_waiting(&error)));
    }
    // A missing body times out too.
    let head = "POST /v1/tickets HTTP/1.1\r\nHost: e\r\nContent-Type: application/json\r\n\
                Content-Length: 30\r\n\r\n{";
    let answer = String::from_utf8(raw(edge, head.as_bytes())).unwrap();
    assert!(answer.contains("too_slow"), "{answer}");
    let status = ask(edge, "GET /v1/status", &[], "");
    // A silent connection, half a head, and a missing body.
    assert_eq!(status.json["edge"]["refused"]["too_slow"], 1);
    let ends = ["too_slow", "closed", "cut"].map(|end| status.json["edge"][end].as_u64().unwrap());
    assert_eq!(
        (ends[0] >= 2, ends.iter().sum::<u64>()),
        (true, 3),
        "{status:?}"
    );
}

#[test]
fn clients_that_read_no_responses_time_out() {
    let net = Net::new();
    let mut config = edge();
    config.write_timeout = Duration::from_millis(300);
    config.connections_max = 9;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let requests = "GET /v1/nothing HTTP/1.1\r\nHost: e\r\n\r\n".repeat(500);
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let mut stream = TcpStream::connect(edge).unwrap();
            let patience = Some(Duration::from_millis(20));
            stream.set_write_timeout(patience).unwrap();
            // Ends when the edge closes, or stops reading because its responses are not read.
            while stream.write_all(requests.as_bytes()).is_ok() {}
            stream
        })
        .collect();
    let after = until("all but who asks are gone", || {
        let now = counts(edge);
        (now["open"] == 1).then_some(now)
    });
    assert_eq!(after["too_slow"], 8, "{after}");
    drop(clients);
}

#[test]
fn connections_have_a_limited_lifetime() {
    let net = Net::new();
    let mut config = edge();
    config.connection_life = Duration::from_millis(500);
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    // Always busy, and never slow.
    let mut stream = TcpStream::connect(edge).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut piece = [0; 4_096];
    let answers = (0..500_000).position(|_| {
        let request = b"GET /v1/status HTTP/1.1\r\nHost: e\r\n\r\n";
        let is_sent = stream.write_all(request).is_ok();
        !is_sent || !stream.read(&mut piece).is_ok_and(|len| len > 0)
    });
    assert!(answers.expect("it ends") > 1);

    // A long poll in progress completes.
    let held = submit(edge, 1);
    let HeldTicket { ticket, resume_key } = &held;
    let bytes = raw(
        edge,
        format!(
            "GET /v1/tickets/{ticket}?wait=2 HTTP/1.1\r\nHost: e\r\n\
             Authorization: Bearer {resume_key}\r\n\r\n"
        )
        .as_bytes(),
    );
    assert_eq!(Answer::read(bytes).text("state"), "queued");
}
