use super::*;

#[test]
fn a_drain_and_a_reason_to_turn_away_are_printed_by_their_names() {
    let path = relay_mesh::routes::Path {
        relays: Vec::new(),
        destination: wire::NodeId([1; 32]),
    };
    let moved = Event::RouteChanged {
        far_end: wire::NodeId([1; 32]),
        from: None,
        to: path,
        cause: RouteCause::Drained,
        flows: 2,
    };
    let line = |event| {
        let news = News::of(Told::Event(event)).unwrap();
        serde_json::to_value(&news).unwrap()
    };
    let moved = line(moved);
    assert_eq!(
        (&moved["event"], &moved["cause"]),
        (&"route".into(), &"drained".into())
    );
    let turned_away = line(Event::TurnedAway {
        game: "doom".to_owned(),
        reason: TurnedAway::TcpNoExit,
        count: 3,
    });
    assert_eq!(turned_away["reason"], "tcp_no_exit");
}

#[test]
fn a_link_that_does_not_come_about_is_printed_with_what_to_look_at() {
    let line = |failure| {
        let failed = Event::BootstrapFailed {
            node: wire::NodeId([1; 32]),
            addresses: vec!["192.0.2.1:17700".parse().unwrap()],
            failure,
            attempts: 4,
        };
        let news = News::of(Told::Event(failed)).unwrap();
        serde_json::to_value(&news).unwrap()
    };
    let cases = [
        (ConnectFailure::Timeout, "network secret"),
        (
            ConnectFailure::NotTheServer { rejected: 2 },
            "is the id right?",
        ),
        (
            ConnectFailure::Refused(CloseCode::PeerIdentity),
            "as a member",
        ),
        (ConnectFailure::Version, "no version in common"),
    ];
    for (failure, expected) in cases {
        let line = line(failure);
        assert_eq!(line["event"], "bootstrap_failed");
        assert_eq!(line["addresses"][0], "192.0.2.1:17700");
        assert!(line["why"].as_str().unwrap().contains(expected), "{line}");
    }
    let refused = Event::NodesRefused {
        reason: NodeRefusal::WrongSecret,
        count: 7,
    };
    let refused = serde_json::to_value(News::of(Told::Event(refused)).unwrap()).unwrap();
    let expected = serde_json::json!({
        "event": "nodes_refused", "reason": "wrong_secret", "count": 7,
    });
    assert_eq!(refused, expected);
}

#[test]
fn orders_are_read_as_documented_and_nothing_else_is() {
    let read = serde_json::from_str::<Order>;
    assert_eq!(read(r#"{"order":"stats"}"#).unwrap(), Order::Stats);
    let link = read(r#"{"order":"link","remote":"127.0.0.2","delay_ms":9}"#).unwrap();
    let expected = Order::Link {
        remote: "127.0.0.2".parse().unwrap(),
        delay_ms: 9,
        loss_per_million: 0,
    };
    assert_eq!(link, expected);
    for bad in [r#"{"order":"die"}"#, "7", r#"{"order":"link"}"#] {
        assert!(read(bad).is_err(), "{bad}");
    }
}
