//! Players at the edge: tickets, long polls, cancels, seats.

use std::thread;
use std::time::Duration;

use daemon::role::matchmaker::MatchResult;
use matchmaker_core::MatchEnd;
use serde_json::{Value, json};

use crate::http::{HeldTicket, about, ask, assigned, held, post, submit};
use crate::net::{Net, PATIENCE, Program, edge, quick, tickwire, until};
use crate::server::{Server, ServerObservation};

#[test]
fn mm_6_two_tickets_make_a_match_and_grants_open_at_one_server() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let mut servers = ["server-0", "server-1"].map(|name| Server::start(&net, name));
    for server in &mut servers {
        server.wait_for(&ServerObservation::Registered);
    }
    let players = [submit(edge, 1), submit(edge, u64::MAX)];
    let seats = players.each_ref().map(|held| assigned(edge, held));
    let [mut server, mut outsider] = servers;
    if server.open(seats[0].text("grant")).is_err() {
        core::mem::swap(&mut server, &mut outsider);
    }
    let assign = server.next_match();
    assert_eq!(assign.instance, server.instance);
    for (number, (seat, client)) in seats.iter().zip([1, u64::MAX]).enumerate() {
        assert_eq!(seat.text("match_id"), assign.match_id.to_string());
        assert_eq!(
            (&seat.json["seat"], &seat.json["team"]),
            (&number.into(), &number.into())
        );
        let instance = server.instance.to_string();
        assert_eq!(seat.json["server"]["instance"], instance);
        let grant = seat.text("grant");
        let token = server.open(grant).unwrap();
        assert_eq!(token.grant.client_id.0, client);
        assert_eq!(token.grant.match_id, assign.match_id);
        assert_eq!(usize::from(token.grant.seat.0), number);
        assert_eq!(seat.json["expires_at"], token.grant.expires_at.as_secs());
        assert!(outsider.open(grant).is_err());
        assert!(
            seat.head.contains("cache-control: no-store"),
            "{}",
            seat.head
        );
    }
    assert_ne!(seats[0].text("grant"), seats[1].text("grant"));
}

#[test]
fn a_seat_keeps_its_grant_until_reissue_or_the_end_of_the_match() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let mut server = Server::start(&net, "server-0");
    let players = [1, 2].map(|client| submit(edge, client));
    let seat = assigned(edge, &players[0]);
    assert_eq!(
        about(edge, "GET", &players[0], "").text("grant"),
        seat.text("grant")
    );
    let token = until("another token is made", || {
        let answer = about(edge, "POST", &players[0], "/token");
        if answer.status == 200 {
            return Some(answer);
        }
        answer.assert_refused(429, "too_soon");
        assert!(answer.head.contains("retry-after: "), "{}", answer.head);
        None
    });
    assert_ne!(token.text("grant"), seat.text("grant"));
    assert!(server.open(token.text("grant")).is_ok());

    about(edge, "DELETE", &players[0], "").assert_refused(409, "assigned");
    let match_id = server.next_match().match_id;
    server.link.finished(match_id, b"one all".to_vec()).unwrap();
    let ended = until("the ticket has ended", || {
        let answer = about(edge, "GET", &players[0], "");
        (answer.text("state") == "ended").then_some(answer)
    });
    assert_eq!(ended.text("reason"), "finished");
    about(edge, "DELETE", &players[0], "").assert_refused(409, "ended");
    about(edge, "POST", &players[0], "/token").assert_refused(409, "not_assigned");
}

#[test]
fn results_of_matches_are_published() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = net.matchmaker(None);
    let results = matchmaker.results().unwrap();
    let edge = matchmaker.address();
    let mut server = Server::start(&net, "server-0");
    let players = [1, 2].map(|client| submit(edge, client));
    assigned(edge, &players[0]);
    let match_id = server.next_match().match_id;
    server.link.finished(match_id, b"one all".to_vec()).unwrap();
    let ended = MatchResult {
        match_id,
        end: MatchEnd::Reported,
        result: b"one all".to_vec(),
    };
    assert_eq!(results.recv_timeout(PATIENCE), Ok(ended));
}

#[test]
fn the_program_prints_results_with_the_option() {
    let mut net = Net::new();
    let _hub = net.hub();
    let mut command = tickwire();
    command
        .args(["matchmaker", "run", "--http", "127.0.0.1:0", "--plain-http"])
        .args(["--app-id", "42", "--no-servers", "--results"])
        .arg("--identity")
        .arg(net.key("matchmaker"))
        .arg("--join-file")
        .arg(net.join_path());
    let mut program = Program::start(&mut command, &net.path("matchmaker.log"));
    let edge = program.said.strip_prefix("http://").unwrap();
    let edge = edge.parse().unwrap();
    let mut server = Server::start(&net, "server-0");
    let players = [1, 2].map(|client| submit(edge, client));
    assigned(edge, &players[0]);
    let match_id = server.next_match().match_id;
    server
        .link
        .finished(match_id, b"\x01\xff".to_vec())
        .unwrap();
    let line: Value = serde_json::from_str(&program.next_line()).unwrap();
    let expected = json!({
        "schema": 1, "match_id": match_id.to_string(), "end": "reported", "result": "01ff",
    });
    assert_eq!(line, expected);
}

#[test]
fn a_wait_ends_with_the_seat_and_not_before() {
    let mut net = Net::new();
    let _hub = net.hub();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let _server = Server::start(&net, "server-0");
    let first = submit(edge, 1);
    let waiting = thread::spawn(move || assigned(edge, &first));
    let second = submit(edge, 2);
    assert_eq!(assigned(edge, &second).text("state"), "assigned");
    assert_eq!(waiting.join().unwrap().text("state"), "assigned");
}

#[test]
fn a_wait_that_times_out_returns_the_current_state() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let held = submit(edge, 1);
    let answer = about(edge, "GET", &held, "?wait=1s");
    assert_eq!((answer.status, answer.text("state")), (200, "queued"));
}

#[test]
fn a_wait_may_not_exceed_the_expiry_of_unpolled_tickets() {
    let net = Net::new();
    let mut config = quick();
    config.ask_timeout = Duration::from_secs(30);
    let refused = net.try_matchmaker(None, config, edge());
    assert!(refused.unwrap_err().sentence.contains("30 s"));
}

#[test]
fn a_ticket_lives_while_it_is_polled() {
    let net = Net::new();
    let mut config = quick();
    config.ask_timeout = Duration::from_secs(2);
    let mut limits = edge();
    limits.wait_max = Duration::from_secs(1);
    let matchmaker = net.matchmaker_with(None, config, limits);
    let edge = matchmaker.address();
    let [asked, left] = [1, 2].map(|client| submit(edge, client));
    // Without a server both wait; one is polled.
    let clock = servicer::Clock::new();
    let end = clock.now() + Duration::from_secs(4);
    while clock.now() < end {
        let answer = about(edge, "GET", &asked, "?wait=1");
        assert_ne!(answer.text("state"), "ended", "{answer:?}");
    }
    assert_eq!(about(edge, "GET", &left, "").text("reason"), "abandoned");
}

#[test]
fn a_cancelled_ticket_ends_its_waits() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let held = submit(edge, 1);
    let waiting = {
        let held = held.clone();
        thread::spawn(move || {
            until("the ticket has ended", || {
                let answer = about(edge, "GET", &held, "?wait=30");
                (answer.text("state") == "ended").then_some(answer)
            })
        })
    };
    for _ in 0..2 {
        let answer = about(edge, "DELETE", &held, "");
        let said = (answer.status, answer.text("state"), answer.text("reason"));
        assert_eq!(
            said,
            (200, "ended", "cancelled"),
            "said twice, it is done as well"
        );
    }
    assert_eq!(waiting.join().unwrap().text("reason"), "cancelled");
}

#[test]
fn the_same_idempotency_key_is_the_same_ticket() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let wish = |key: &str| {
        let headers = [
            ("Content-Type", "application/json"),
            ("Idempotency-Key", key),
        ];
        let body = r#"{"client_id":"5","user":"00ff"}"#;
        let answer = ask(edge, "POST /v1/tickets", &headers, body);
        assert_eq!(answer.status, 201, "{answer:?}");
        held(&answer)
    };
    let first = wish("abababab-abab-abab-abab-abababababab");
    assert_eq!(wish("\"abababababababababababababababab\""), first);
    let second = wish("cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd");
    assert_ne!(second, first);
    let replaced = about(edge, "GET", &first, "");
    assert_eq!(replaced.text("reason"), "replaced");
    // A late duplicate of the first changes nothing.
    assert_eq!(wish("abababababababababababababababab"), first);
    assert_eq!(about(edge, "GET", &second, "").text("state"), "queued");
}

#[test]
fn a_ticket_belongs_to_its_holder() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let (mine, yours) = (submit(edge, 1), submit(edge, 2));
    let stolen = HeldTicket {
        ticket: yours.ticket,
        ..mine.clone()
    };
    let unknown = HeldTicket {
        ticket: "0123456789abcdef".to_owned(),
        ..mine.clone()
    };
    let no_key = HeldTicket {
        resume_key: "x".to_owned(),
        ..mine.clone()
    };
    for held in [&stolen, &unknown, &no_key] {
        for (verb, rest) in [
            ("GET", ""),
            ("GET", "?wait=1"),
            ("DELETE", ""),
            ("POST", "/token"),
        ] {
            about(edge, verb, held, rest).assert_refused(404, "unknown_ticket");
        }
    }
    let line = format!("GET /v1/tickets/{}", mine.ticket);
    ask(edge, &line, &[], "").assert_refused(401, "no_resume_key");
    assert_eq!(about(edge, "GET", &mine, "").text("state"), "queued");
}

#[test]
fn a_full_queue_is_reported() {
    let net = Net::new();
    let mut config = quick();
    config.tickets_max = 1;
    let matchmaker = net.matchmaker_with(None, config, edge());
    let edge = matchmaker.address();
    submit(edge, 1);
    let refused = post(edge, r#"{"client_id":"2"}"#);
    refused.assert_refused(503, "queue_full");
    assert!(refused.head.contains("retry-after: 5"), "{}", refused.head);
}
