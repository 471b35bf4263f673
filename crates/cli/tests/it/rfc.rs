//! RFC conformance of the matchmaker's HTTP edge. Parts that need no socket are tested in
//! `src/http` and `src/edge/forwarded.rs`.

use daemon::edge::ProxyHeader;

use crate::http::{Answer, HeldTicket, ask, post, raw, submit};
use crate::net::{Net, edge, quick, until};

fn with_header(address: std::net::SocketAddr, held: &HeldTicket, name: &str, value: &str) -> u16 {
    let line = format!("GET /v1/tickets/{}", held.ticket);
    ask(address, &line, &[(name, value)], "").status
}

#[test]
fn rfc9110_schemes_and_field_names_ignore_case() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let held = submit(edge, 5);
    for (name, scheme) in [
        ("Authorization", "Bearer"),
        ("authorization", "bearer"),
        ("AUTHORIZATION", "BEARER"),
        ("aUtHoRiZaTiOn", "bEARER  "),
    ] {
        let value = format!("{scheme} {}", held.resume_key);
        assert_eq!(
            with_header(edge, &held, name, &value),
            200,
            "{name} {scheme}"
        );
    }
    let key = &held.resume_key;
    for value in [format!("Basic {key}"), format!("Bearer{key}"), key.clone()] {
        assert_eq!(
            with_header(edge, &held, "Authorization", &value),
            401,
            "{value}"
        );
    }
    let line = format!("GET /v1/tickets/{}", held.ticket);
    let answer = ask(edge, &line, &[], "");
    answer.assert_refused(401, "no_resume_key");
    assert!(
        answer.head.contains("www-authenticate: bearer"),
        "{answer:?}"
    );
    let media = [("CONTENT-TYPE", "Application/JSON ; charset=\"utf-8\"")];
    let answer = ask(edge, "POST /v1/tickets", &media, r#"{"client_id":"6"}"#);
    assert_eq!(answer.status, 201, "{answer:?}");
}

#[test]
fn rfc3986_percent_encoding_is_equivalent_in_a_target() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let held = submit(edge, 5);
    let bearer = format!("Bearer {}", held.resume_key);
    let get = |target: &str| {
        let line = format!("GET {target}");
        ask(edge, &line, &[("Authorization", &bearer)], "")
    };
    let (first, rest) = held.ticket.split_at(1);
    let encoded = format!("%{:x}{rest}", first.as_bytes()[0]);
    for target in [
        format!("/v1/%74icke%74s/{}", held.ticket),
        format!("/%76%31/tickets/{encoded}"),
        format!("/v1/tickets/{encoded}?%77ait=%30%73"),
        // Absolute form, in any case (RFC 9112, section 3.2.2).
        format!("HTTP://EDGE/v1/tickets/{}?wait=0", held.ticket),
    ] {
        assert_eq!(get(&target).status, 200, "{target}");
    }
    get("/%76%31/status/").assert_refused(404, "no_route");
    // An encoded `/` is not a separator.
    get(&format!("/v1%2Ftickets/{}", held.ticket)).assert_refused(404, "no_route");
    let wait = get(&format!("/v1/tickets/{}?%77ait=%2D1", held.ticket));
    wait.assert_refused(400, "bad_wait");
    assert_eq!(
        (wait.text("field"), wait.text("found").is_empty()),
        ("wait", false)
    );
}

#[test]
fn rfc9112_one_host_is_required_and_405_lists_the_methods() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    let send_request = |text: &str| Answer::read(raw(edge, text.as_bytes()));
    for hosts in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
    ] {
        let text = format!("GET /v1/status HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n");
        send_request(&text).assert_refused(400, "bad_host");
    }
    let old = send_request("GET /v1/status HTTP/1.0\r\n\r\n");
    assert_eq!(old.status, 200, "{old:?}");
    let answer = ask(edge, "PUT /v1/status", &[], "");
    answer.assert_refused(405, "no_method");
    assert!(answer.head.contains("allow: get"), "{answer:?}");
    // Errors before routing are counted too.
    let status = ask(edge, "GET /v1/status", &[], "").json;
    assert_eq!(status["edge"]["refused"]["bad_host"], 4, "{status}");
}

#[test]
fn rfc9112_chunked_once_is_the_only_transfer_coding() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    for (codings, status, error) in [
        ("gzip, chunked", 501, "no_coding"),
        ("identity, chunked", 501, "no_coding"),
        ("chunked, chunked", 400, "bad_coding"),
    ] {
        let text = format!(
            "GET /v1/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
             Transfer-Encoding: {codings}\r\n\r\n0\r\n\r\n"
        );
        Answer::read(raw(edge, text.as_bytes())).assert_refused(status, error);
    }
    let text = "GET /v1/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(Answer::read(raw(edge, text.as_bytes())).status, 200);
}

#[test]
fn rfc7239_a_quoted_comma_forges_no_source() {
    let net = Net::new();
    let mut config = edge();
    config.requests_per_second = 1;
    config.requests_burst = 3;
    config.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    config.proxy_header = ProxyHeader::Forwarded;
    let matchmaker = net.matchmaker_with(None, quick(), config);
    let edge = matchmaker.address();
    let ask_for = |value: &str| ask(edge, "GET /v1/status", &[("forwarded", value)], "").status;
    // The proxy appends the client's host as a quoted string.
    let passed = (0..600_u32)
        .filter(|player| {
            let [_, _, high, low] = player.to_be_bytes();
            let host = format!("a,for=1.2.{high}.{low}");
            ask_for(&format!("for=192.0.2.1;host=\"{host}\"")) == 200
        })
        .count();
    // A forged source would allow all 600; the rate refills by one per second.
    assert!(passed < 300, "{passed} of 600 passed");
    until("the rate of one is used up", || {
        (ask_for("for=192.0.2.1") == 429).then_some(())
    });
    assert_eq!(ask_for("for=192.0.2.2;host=\"a,for=192.0.2.1\""), 200);
}

#[test]
fn null_counts_as_absent_and_errors_name_the_field() {
    let net = Net::new();
    let matchmaker = net.matchmaker(None);
    let edge = matchmaker.address();
    assert_eq!(post(edge, r#"{"client_id":"7","user":null}"#).status, 201);
    let answer = post(edge, r#"{"client_id":42}"#);
    answer.assert_refused(400, "malformed_json");
    assert_eq!(answer.text("field"), "client_id");
    assert_eq!(answer.text("found"), "the number 42");
    assert!(answer.text("expected").contains("\"42\""), "{answer:?}");
    let answer = post(edge, r#"{"client_id":"8","usr":"00"}"#);
    answer.assert_refused(400, "malformed_json");
    assert_eq!(answer.text("field"), "usr");
}
