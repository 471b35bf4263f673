use super::*;
use crate::game::HeaderTiming;
use crate::proxy_header::Version;
use crate::signed_config::fixture::{Admins, game, game_with, node};
use crate::signed_config::{NodeList, Protocol, ProxyExtra, ProxyRule, ProxyVersion};
use proptest::prelude::*;

const ONE: (&[usize], usize) = (&[0], 1);

/// The error text of a document; empty if it is valid.
fn fault(text: &str) -> String {
    Document::read(text.as_bytes()).map_or_else(|error| error.to_string(), |_| String::new())
}

fn list(kind: &str, nodes: &[NodeId]) -> String {
    let nodes: Vec<String> = nodes.iter().map(|node| format!("\"{node}\"")).collect();
    format!("{{\"nodes\":[{}],\"type\":\"{kind}\"}}", nodes.join(","))
}

#[test]
fn every_field_is_read() {
    let admins = Admins::new(3);
    let pem = admins.key(1).to_pem().unwrap().replace('\n', "\\n");
    let text = format!(
        r#"{{
  "games": [ {{
    "proxy_header": {{ "extras": ["session_id"], "datagrams": "each", "version": 2 }},
    "exit": {{ "nodes": ["{two}"], "type": "white" }},
    "entry": {{ "type": "black", "nodes": ["{three}", "{one}"] }},
    "listen_ports": [5030, 5029],
    "mode": "dup", "server": "[2001:db8::7]:5029", "protocol": "udp", "name": "doom"
  }} ],
  "members": [ {{ "roles": ["entry", "exit"], "node": "{one}" }}, {{ "node": "{two}", "roles": [] }} ],
  "admins": {{ "keys": ["{key}", "{pem}"], "threshold": 2 }},
  "after_end": "refuse_new",
  "not_after": 9007199254740991, "not_before": 0,
  "version": 9007199254740991, "network": "east-1.test_A"
}}"#,
        one = node(1),
        two = node(2),
        three = node(3),
        key = admins.key(0),
    );
    let document = Document::read(text.as_bytes()).unwrap();
    assert_eq!(document.network, "east-1.test_A");
    assert_eq!(document.version, Document::NUMBER_MAX);
    assert_eq!(document.not_before, UnixTime::from_secs(0));
    assert_eq!(document.not_after.as_secs(), Document::NUMBER_MAX);
    assert_eq!(document.after_end, AfterEnd::RefuseNew);
    assert_eq!(document.admins, admins.keys(&[0, 1], 2));
    let members = [
        (node(1), Roles::ENTRY | Roles::EXIT),
        (node(2), Roles::NONE),
    ];
    assert_eq!(document.members, Some(members.into()));
    let rule = &document.games["doom"];
    assert_eq!(rule.protocol, Protocol::Udp);
    assert_eq!(rule.mode, Mode::Dup);
    assert_eq!(rule.server, "[2001:db8::7]:5029".parse().unwrap());
    assert_eq!(rule.listen_ports, [5_029, 5_030].into());
    assert_eq!(rule.entry, NodeList::Black([node(1), node(3)].into()));
    assert_eq!(rule.exit, NodeList::White([node(2)].into()));
    let proxy = ProxyRule {
        version: ProxyVersion(Version::Two),
        datagrams: HeaderTiming::Each,
        extras: [ProxyExtra::SessionId].into(),
    };
    assert_eq!(rule.proxy_header, Some(proxy));
}

#[test]
fn what_is_left_out_has_its_default() {
    let admins = Admins::new(1);
    let text = admins.document(1, ONE, &game("doom", 1));
    let document = Document::read(text.as_bytes()).unwrap();
    assert_eq!(document.after_end, AfterEnd::Serve);
    assert_eq!(document.members, None);
    assert_eq!(document.games["doom"].mode, Mode::Shadow);
    assert_eq!(document.games["doom"].proxy_header, None);
    let bare = text.replace(&format!(",\"games\":[{}]", game("doom", 1)), "");
    assert!(Document::read(bare.as_bytes()).unwrap().games.is_empty());
}

#[test]
fn pg11_pgd_p7_lists_are_sets_in_any_order_and_an_unknown_type_is_refused() {
    let admins = Admins::new(1);
    let with = |entry: &str, exit: &str| {
        let game = game_with("doom", 1, entry, exit);
        admins.document(1, ONE, &game)
    };
    let (a, b, c) = (node(9), node(1), node(5));
    for order in [[a, b, c], [c, b, a], [b, a, c]] {
        let text = with(&list("white", &order), &list("black", &order));
        let rule = Document::read(text.as_bytes()).unwrap().games["doom"].clone();
        assert_eq!(rule.entry, NodeList::White([a, b, c].into()));
        assert_eq!(rule.exit, NodeList::Black([a, b, c].into()));
        for node in order {
            assert!(rule.entry.admits(&node));
            assert!(!rule.exit.admits(&node), "unsorted lists let it in");
        }
        assert!(!rule.entry.admits(&node(2)));
        assert!(rule.exit.admits(&node(2)));
    }
    let all = "{\"type\":\"all\"}";
    for kind in ["grey", "", "ALL", "White"] {
        let text = with(&list(kind, &[]), all);
        let said = format!("found {kind:?}; expected one of \"all\", \"white\", \"black\"");
        assert!(fault(&text).ends_with(&said), "{}", fault(&text));
        let place = "line 1: games[0].entry.type: ";
        assert!(fault(&text).starts_with(place), "{}", fault(&text));
    }
    let named = with(all, &list("all", &[a]));
    assert!(fault(&named).starts_with("games[0].exit.nodes[0] names nodes"));
    let twice = with(&list("white", &[a, b, a]), all);
    assert_eq!(fault(&twice), "games[0].entry.nodes[2] stands there twice");
    let bad = with("{\"type\":\"white\",\"nodes\":[\"12D3Koo\"]}", all);
    assert!(fault(&bad).starts_with("games[0].entry.nodes[0] is no node id"));
    let more = with("{\"type\":\"all\",\"white_list\":[]}", all);
    assert!(fault(&more).contains("unknown field \"white_list\""));
}

/// A replacement in a valid text, and the start of the error.
const FAULTS: &[(&str, &str, &str)] = &[
    ("\"test\"", "\"\"", "network is empty"),
    (
        "\"test\"",
        "\"a b\"",
        "network holds something else than A-Z a-z 0-9 . _ -",
    ),
    (
        "\"version\":7",
        "\"version\":0",
        "version is not within 1 to 9007199254740991",
    ),
    (
        "\"version\":7",
        "\"version\":9007199254740992",
        "version is not within 1 to 9007199254740991",
    ),
    (
        "\"version\":7",
        "\"version\":-1",
        "line 1: version: found -1; expected a whole number",
    ),
    (
        "\"version\":7",
        "\"version\":7.0",
        "line 1: version: found 7.0; expected a whole number",
    ),
    (
        "2000",
        "1000",
        "not_after is not within 1001 to 9007199254740991",
    ),
    (
        "\"threshold\":1",
        "\"threshold\":0",
        "admins.threshold is not within 1 to 1",
    ),
    (
        "\"threshold\":1",
        "\"threshold\":2",
        "admins.threshold is not within 1 to 1",
    ),
    ("[\"04", "[\"05", "admins.keys[0] is no public key of P-256"),
    ("\"doom\"", "\"\"", "games[0].name is empty"),
    ("\"doom\"", "\"d/m\"", "games[0].name holds something else"),
    (
        "192.0.2.7:5029",
        "example.org:5029",
        "games[0].server is no address",
    ),
    (
        "192.0.2.7:5029",
        "192.0.2.7:0",
        "games[0].server is no address",
    ),
    (
        "192.0.2.7:5029",
        "0.0.0.0:5029",
        "games[0].server is no address",
    ),
    ("[1]", "[]", "games[0].listen_ports is empty"),
    (
        "[1]",
        "[1,0]",
        "games[0].listen_ports[1] is not within 1 to 65535",
    ),
    (
        "[1]",
        "[2,1,2]",
        "games[0].listen_ports[2] stands there twice",
    ),
    (
        "\"udp\"",
        "\"UDP\"",
        "line 1: games[0].protocol: found \"UDP\"; expected \"udp\" or \"tcp\"",
    ),
    (
        "\"udp\"",
        "\"udp\",\"udp\":1",
        "line 1: games[0].udp: unknown field \"udp\"",
    ),
    (
        "\"games\"",
        "\"version\":8,\"games\"",
        "line 1: duplicate field \"version\"",
    ),
    ("]}", "]} x", "line 1: the file is not JSON at column"),
];

#[test]
fn each_fault_is_named_with_its_place() {
    let admins = Admins::new(1);
    let good = admins.document(7, ONE, &game("doom", 1));
    assert_eq!(fault(&good), "");
    let key = admins.key(0).to_string();
    for (from, to, expected) in FAULTS {
        let text = if *to == "]} x" {
            format!("{good} x")
        } else {
            good.replacen(from, to, 1)
        };
        let found = fault(&text);
        assert!(found.starts_with(expected), "{from} -> {to}: {found}");
    }
    let twice = admins.document(7, ONE, &[game("a", 1), game("a", 2)].join(","));
    assert_eq!(fault(&twice), "games[1].name stands there twice");
    let member = format!("{{\"node\":\"{}\",\"roles\":[]}}", node(1));
    let members = format!("\"members\":[{member},{member}],\"games\"");
    let twice = good.replace("\"games\"", &members);
    assert_eq!(fault(&twice), "members[1].node stands there twice");
    let keys = format!("[\"{key}\",\"{key}\"]");
    let twice = good.replace(&format!("[\"{key}\"]"), &keys);
    assert_eq!(fault(&twice), "admins.keys[1] stands there twice");
}

#[test]
fn a_header_that_the_protocol_does_not_know_is_refused() {
    let admins = Admins::new(1);
    let with = |protocol: &str, header: &str| {
        let game = game("doom", 1)
            .replace("udp", protocol)
            .replace("\"entry\"", &format!("\"proxy_header\":{header},\"entry\""));
        fault(&admins.document(1, ONE, &game))
    };
    let wrong = "games[0].proxy_header does not go with the protocol of the game";
    for (protocol, header, expected) in [
        ("udp", "{\"version\":2}", ""),
        (
            "udp",
            "{\"version\":2,\"datagrams\":\"each\",\"extras\":[\"crc32c\",\"session_id\"]}",
            "",
        ),
        (
            "tcp",
            "{\"version\":2,\"extras\":[\"crc32c\",\"session_id\"]}",
            "",
        ),
        ("tcp", "{\"version\":1}", ""),
        ("udp", "{\"version\":1}", wrong),
        ("tcp", "{\"version\":1,\"extras\":[\"crc32c\"]}", wrong),
        ("tcp", "{\"version\":1,\"extras\":[\"nodes\"]}", wrong),
        ("tcp", "{\"version\":2,\"datagrams\":\"each\"}", wrong),
    ] {
        assert_eq!(with(protocol, header), expected, "{protocol} {header}");
    }
    assert!(with("tcp", "{\"version\":3}").contains("the PROXY protocol has versions"));
    assert_eq!(with("tcp", "{}"), "");
    assert!(with("tcp", "{\"crc32c\":true}").contains("unknown field \"crc32c\""));
}

/// Generator of a text of a given size, the largest size, and the start of the error.
type Case<'a> = (&'a dyn Fn(usize) -> String, usize, &'a str);

#[test]
fn each_bound_is_reached_and_not_passed() {
    let admins = Admins::new(9);
    let good = admins.document(7, ONE, "");
    let id = |number: usize| {
        let mut id = [0; 32];
        id[..8].copy_from_slice(&number.to_be_bytes());
        NodeId(id)
    };
    let games = |count: usize| {
        let games: Vec<String> = (0..count)
            .map(|number| game(&number.to_string(), 1))
            .collect();
        fault(&admins.document(7, ONE, &games.join(",")))
    };
    let nodes = |count: usize| {
        let nodes: Vec<NodeId> = (0..count).map(id).collect();
        let game = game_with("a", 1, &list("white", &nodes), "{\"type\":\"all\"}");
        fault(&admins.document(7, ONE, &game))
    };
    let members = |count: usize| {
        let members = (0..count).map(|n| format!("{{\"node\":\"{}\",\"roles\":[]}}", id(n)));
        let members = members.collect::<Vec<_>>().join(",");
        fault(&good.replace("\"games\"", &format!("\"members\":[{members}],\"games\"")))
    };
    let keys = |count: usize| {
        let all: Vec<usize> = (0..count).collect();
        fault(&admins.document(7, (&all, 1), ""))
    };
    let ports = |count: usize| {
        let ports: Vec<String> = (1..=count).map(|port| port.to_string()).collect();
        let ports = format!("[{}]", ports.join(","));
        fault(&admins.document(7, ONE, &game("a", 1).replace("[1]", &ports)))
    };
    let game_name = |len: usize| fault(&admins.document(7, ONE, &game(&"a".repeat(len), 1)));
    let network = |len: usize| fault(&good.replace("test", &"a".repeat(len)));
    let len = |len: usize| fault(&format!("{good}{}", " ".repeat(len - good.len())));
    let cases: [Case<'_>; 8] = [
        (&games, GameRule::GAMES_MAX, "games has"),
        (&nodes, NodeList::NODES_MAX, "games[0].entry.nodes has"),
        (&members, Document::MEMBERS_MAX, "members has"),
        (&keys, AdminKeys::KEYS_MAX, "admins.keys has"),
        (
            &ports,
            GameRule::LISTEN_PORTS_MAX,
            "games[0].listen_ports has",
        ),
        (&game_name, 64, "games[0].name has"),
        (&network, Document::NETWORK_LEN_MAX, "network has"),
        (&len, DOCUMENT_LEN_MAX, "document has"),
    ];
    for (fault, max, begin) in cases {
        assert_eq!(fault(max), "", "{begin} {max}");
        let over = fault(max + 1);
        assert!(over.starts_with(begin), "{over}");
        assert!(
            over.ends_with(&format!("over the limit of {max}")),
            "{over}"
        );
    }
}

#[test]
fn deep_nesting_ends_in_an_error() {
    let deep = "[".repeat(DOCUMENT_LEN_MAX);
    assert_ne!(fault(&deep), "");
    let inside = format!("{{\"network\":{}", "[".repeat(100_000));
    assert_ne!(fault(&inside), "");
}

#[test]
fn pg11_what_a_document_allows_is_asked_of_it() {
    let admins = Admins::new(1);
    let (entry, relay, exit, barred, outsider) = (node(1), node(2), node(3), node(4), node(5));
    let game = game_with(
        "doom",
        1,
        &list("white", &[entry, relay]),
        &list("black", &[barred]),
    );
    let text = admins.document(1, ONE, &game);
    let open = Document::read(text.as_bytes()).unwrap();
    let member = |node: NodeId, roles: &str| format!("{{\"node\":\"{node}\",\"roles\":[{roles}]}}");
    let members = [
        member(entry, "\"entry\""),
        member(relay, "\"relay\""),
        member(exit, "\"exit\",\"relay\""),
        member(barred, "\"entry\",\"relay\",\"exit\""),
    ];
    let members = format!("\"members\":[{}],\"games\"", members.join(","));
    let listed = Document::read(text.replace("\"games\"", &members).as_bytes()).unwrap();

    assert!(listed.is_member(&relay) && !listed.is_member(&outsider) && open.is_member(&outsider));
    assert!(listed.may_relay(&relay) && !listed.may_relay(&entry) && open.may_relay(&entry));
    assert!(!listed.may_relay(&outsider));
    assert!(listed.may_enter("doom", &entry) && open.may_enter("doom", &entry));
    assert!(
        !listed.may_enter("doom", &relay),
        "listed for the game, but no entry"
    );
    assert!(
        !listed.may_enter("doom", &barred),
        "an entry, but not of this game"
    );
    assert!(!open.may_enter("doom", &outsider));
    assert!(listed.may_exit("doom", &exit) && open.may_exit("doom", &outsider));
    assert!(!listed.may_exit("doom", &barred) && !open.may_exit("doom", &barred));
    assert!(!listed.may_exit("doom", &outsider));
    assert!(!open.may_enter("quake", &entry) && !open.may_exit("quake", &exit));
    assert!(listed.may_send(&entry) && listed.may_send(&exit));
    assert!(!listed.may_send(&relay) && !listed.may_send(&barred));
}

proptest! {
    /// Any text is read or refused without a panic, with an error of bounded length.
    #[test]
    fn any_change_of_a_text_is_read_or_refused(
        at in any::<prop::sample::Index>(),
        with in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let admins = Admins::new(1);
        let mut text = admins.document(1, ONE, &game("doom", 1)).into_bytes();
        let at = at.index(text.len());
        text.splice(at..text.len().min(at + 4), with);
        if let Err(error) = Document::read(&text) {
            prop_assert!(error.to_string().len() < 500);
        }
    }
}
