mod errors;

use std::net::Ipv4Addr;

use crypto::Identity;
use relay_mesh::proxy_header::Version;
use relay_mesh::signed_config::{AdminKeys, ProxyRule, ProxyVersion};
use relay_mesh::{EntryGame, ExitGame, HeaderTiming, Mode, ServerHeader};

use super::*;
#[cfg(feature = "emulation")]
use crate::relay::Emulation;
use crate::relay::sandbox::Sandbox;

#[cfg(not(feature = "emulation"))]
#[test]
fn links_are_refused_if_emulation_is_not_built() {
    let mut sandbox = Sandbox::new(&[("one", FileRole::Entry), ("two", FileRole::Exit)]).unwrap();
    sandbox.link(0, 1, 5);
    let error = sandbox.config(0).unwrap().setup(sandbox.directory());
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("links") && text.contains("without link emulation"),
        "{text}"
    );
}

#[cfg(feature = "emulation")]
#[test]
fn every_field_of_the_file_reaches_the_node() {
    let sandbox = Sandbox::new(&[("one", FileRole::Entry), ("two", FileRole::Exit)]).unwrap();
    let [one, two] = [0, 1].map(|node| sandbox.id(node).unwrap());
    let text = format!(
        r#"{{
            "name": "one",
            "identity_file": "one.pem",
            "secret_file": "secret",
            "listen": "127.0.0.1:4500",
            "advertise": ["192.0.2.1:4500", "[2001:db8::1]:4500"],
            "roles": ["entry", "relay", "exit"],
            "bootstrap": [{{"node": "{two}", "address": "192.0.2.2:4500"}}],
            "members": [
                {{"node": "{one}", "roles": ["entry", "relay"]}},
                {{"node": "{two}", "roles": ["exit"]}}
            ],
            "games": [
                {{"name": "a", "mode": "dup", "listen": ["127.0.0.1:9"], "exits": ["{two}"]}},
                {{"name": "b", "server": "127.0.0.1:10", "entries": ["{two}"], "proxy_header": true}}
            ],
            "upstream_ip": "192.0.2.1",
            "hop_frames": "tag_only",
            "shards": 4,
            "links": [
                {{"remote": "192.0.2.2", "delay_ms": 20}},
                {{"remote": "192.0.2.3", "delay_ms": 0, "loss_per_million": 4000000000}}
            ],
            "seed": 7
        }}"#,
        one = one.0,
        two = two.0,
    );
    let config: FileConfig = serde_json::from_str(&text).unwrap();
    assert_eq!(config.seed, 7);

    let setup = config.setup(sandbox.directory()).unwrap();
    assert_eq!(NodeName(setup.identity.node_id()), one);
    assert_eq!(setup.name, "one");
    assert_eq!(setup.listen, config.listen);
    let upstream = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(config.upstream_ip, Some(upstream));
    assert_eq!(setup.upstream, config.upstream_ip);
    assert_eq!(config.links.len(), 2);
    let Emulation { outbound, inbound } = setup.emulation;
    assert_eq!((outbound.len(), inbound.len()), (2, 0));

    let node = setup.node;
    let secret = fs::read_to_string(sandbox.directory().join(&config.secret_file)).unwrap();
    assert_eq!(NodeId(*node.secret.expose()).to_string(), secret);
    assert_eq!(config.hop_frames, FileHopFrames::TagOnly);
    assert_eq!(config.shards, 4);
    assert_eq!(node.hop_kind, HopKind::TagOnly);
    assert_eq!(node.profile.name, "one");
    assert_eq!(node.profile.addresses, config.advertise);
    assert_eq!(node.profile.roles, Roles::ALL);
    let known = (two.0, "192.0.2.2:4500".parse().unwrap());
    assert_eq!(node.bootstrap.nodes, [known]);
    let members = [(one.0, Roles::ENTRY | Roles::RELAY), (two.0, Roles::EXIT)];
    assert_eq!(node.members, Some(members.into()));
    assert_games(&node.games, two);
}

/// Asserts that the games are those of the file above.
#[cfg(feature = "emulation")]
fn assert_games(games: &[Game], two: NodeName) {
    let entry = EntryGame {
        listen: vec!["127.0.0.1:9".parse().unwrap()],
        exits: vec![two.0],
    };
    let exit = ExitGame {
        server: "127.0.0.1:10".parse().unwrap(),
        entries: Some([two.0].into()),
        header: Some(ServerHeader::default()),
    };
    let [a, b] = games else {
        panic!("two games");
    };
    assert_eq!(
        (a.mode, &a.entry, &a.exit),
        (Mode::Dup, &Some(entry), &None)
    );
    assert_eq!(
        (b.mode, &b.entry, &b.exit),
        (Mode::Shadow, &None, &Some(exit))
    );
}

#[test]
fn limits_of_the_file_reach_the_node() {
    let mut sandbox = Sandbox::new(&[("one", FileRole::Exit)]).unwrap();
    let mut config = sandbox.config_mut(0).unwrap().clone();
    let text = r#"{"flows": 100, "idle_secs": 20, "links": 9, "flow_bytes_per_second": 5000, "drain_secs": 3,
        "tcp_connections": 70, "tcp_per_address": 7}"#;
    config.limits = serde_json::from_str(text).unwrap();
    let limits = FileLimits {
        flows: Some(100),
        idle_secs: Some(20),
        links: Some(9),
        flow_bytes_per_second: Some(5_000),
        tcp_connections: Some(70),
        tcp_per_address: Some(7),
        drain_secs: Some(3),
    };
    assert_eq!(config.limits, limits);
    let node = config.setup(sandbox.directory()).unwrap().node;
    let set = (node.flows_max, node.links_max, node.label_rate);
    assert_eq!(node.flow_rate, node.label_rate);
    assert_eq!(set, (100, 9, 5_000));
    assert_eq!(node.flow_idle, Duration::from_secs(20));
}

#[test]
fn limits_outside_their_range_are_rejected() {
    let fault = |protocol, field: &str, found: u64| {
        fault_of(|config, mut game| {
            game.protocol = protocol;
            config.games = vec![game];
            let limits = format!("{{\"{field}\": {found}}}");
            config.limits = serde_json::from_str(&limits).unwrap();
        })
    };
    let tcp = Protocol::Tcp;
    for (field, min, max) in [
        ("flows", 1, 1_048_576),
        ("idle_secs", 1, 86_400),
        ("links", 1, 4_096),
        ("flow_bytes_per_second", 1_500, 1_073_741_824),
        ("tcp_connections", 1, 65_536),
        ("tcp_per_address", 1, 65_536),
        ("drain_secs", 0, 86_400),
    ] {
        for found in [min, max] {
            assert_eq!(fault(tcp, field, found), None, "{field} of {found}");
        }
        for found in [max + 1].into_iter().chain(u64::checked_sub(min, 1)) {
            let expected = format!("{field}: found {found}; expected {min} to {max}");
            let fault_text = fault(tcp, field, found).unwrap();
            assert!(fault_text.ends_with(&expected), "{fault_text}");
        }
    }
    let none = fault(Protocol::Udp, "tcp_connections", 0);
    assert_eq!(none, None, "there is no TCP game");
}

#[test]
fn without_advertise_the_bound_address_is_advertised() {
    let mut sandbox = Sandbox::new(&[("one", FileRole::Relay)]).unwrap();
    let config = sandbox.config_mut(0).unwrap().clone();
    let again = serde_json::to_string(&config).unwrap();
    let again: FileConfig = serde_json::from_str(&again).unwrap();
    assert_eq!(again, config, "what is written is read");
    let setup = config.setup(sandbox.directory()).unwrap();
    assert_eq!(setup.node.profile.addresses, [config.listen]);
    assert_eq!(setup.node.profile.roles, Roles::RELAY);
}

fn doom() -> FileGame {
    FileGame {
        name: "doom".to_owned(),
        protocol: Protocol::Udp,
        mode: Mode::Shadow,
        listen: vec!["127.0.0.1:9".parse().unwrap()],
        exits: vec![NodeName(NodeId([1; 32]))],
        server: None,
        entries: None,
        proxy_header: None,
    }
}

/// The fault of an entry's configuration after `change`, which may add the game.
fn fault_of(change: impl FnOnce(&mut FileConfig, FileGame)) -> Option<String> {
    let mut sandbox = Sandbox::new(&[("one", FileRole::Entry)]).unwrap();
    let mut config = sandbox.config_mut(0).unwrap().clone();
    change(&mut config, doom());
    let setup = config.setup(sandbox.directory());
    setup.err().map(|error| error.to_string())
}

/// As [`fault_of`], with its only game changed.
fn with(change: impl FnOnce(&mut FileGame)) -> Option<String> {
    fault_of(|config, mut game| {
        change(&mut game);
        config.games = vec![game];
    })
}

fn assert_faults<const N: usize>(cases: [(Option<String>, &str); N]) {
    for (fault, expected) in cases {
        let fault = fault.unwrap();
        assert!(fault.ends_with(&format!(": {expected}")), "{fault}");
    }
}

#[test]
fn an_invalid_game_is_rejected_in_one_sentence() {
    assert_eq!(with(|_| ()), None);
    assert_faults([
        (with(|game| game.name.clear()), "game \"\" has no name"),
        (
            with(|game| {
                game.listen.clear();
                game.exits.clear();
            }),
            "game \"doom\" has neither \"listen\", for an entry, nor \"server\", for an exit",
        ),
        (
            with(|game| game.listen = vec!["127.0.0.1:9".parse().unwrap(); 2]),
            "game \"doom\" lists 127.0.0.1:9 twice in \"listen\"",
        ),
        (
            with(|game| game.exits.clear()),
            "game \"doom\" has only one of \"listen\" and \"exits\", and an entry needs both",
        ),
        (
            fault_of(|config, game| {
                config.roles = [FileRole::Relay].into();
                config.games = vec![game];
            }),
            "game \"doom\" has \"listen\", but this node is not an entry",
        ),
        (
            fault_of(|config, mut game| {
                game.server = Some("127.0.0.1:10".parse().unwrap());
                config.games = vec![game];
            }),
            "game \"doom\" has \"server\", but this node is not an exit",
        ),
        (
            fault_of(|config, mut game| {
                config.roles = [FileRole::Entry, FileRole::Exit].into();
                game.server = Some("0.0.0.0:0".parse().unwrap());
                config.games = vec![game];
            }),
            "game \"doom\" has a \"server\" that is not a reachable address",
        ),
        (
            with(|game| game.entries = Some(BTreeSet::new())),
            "game \"doom\" has \"entries\" without \"server\"",
        ),
        (
            with(|game| {
                game.proxy_header = Some(ProxyRule {
                    version: ProxyVersion(Version::One),
                    ..ProxyRule::default()
                });
            }),
            "game \"doom\" uses UDP, which version 1 of \"proxy_header\" does not support",
        ),
    ]);
}

#[test]
fn an_invalid_node_is_rejected_in_one_sentence() {
    assert_faults([
        (
            fault_of(|config, _| config.listen = "0.0.0.0:4500".parse().unwrap()),
            "other nodes cannot reach 0.0.0.0:4500; set \"advertise\"",
        ),
        (
            fault_of(|config, _| config.advertise = vec!["192.0.2.1:0".parse().unwrap()]),
            "192.0.2.1:0 is not a reachable address",
        ),
        (
            fault_of(|config, game| config.games = vec![game.clone(), game]),
            "game \"doom\" is listed twice",
        ),
        (
            fault_of(|config, _| config.roles.clear()),
            "\"roles\" is empty; expected one or more of \"entry\", \"relay\", \"exit\"",
        ),
        (
            fault_of(|config, _| {
                config.bootstrap = vec![BootstrapNode {
                    node: NodeName(NodeId([1; 32])),
                    address: "0.0.0.0:4500".parse().unwrap(),
                }];
            }),
            "0.0.0.0:4500 is not a reachable address",
        ),
    ]);
}

#[test]
fn the_unproved_limits_of_a_file_are_those_of_its_games() {
    let mut sandbox = Sandbox::new(&[("one", FileRole::Entry)]).unwrap();
    let config = sandbox.config_mut(0).unwrap();
    let quota = FileUnprovedLimits {
        newcomers_per_second: Some(16),
        unproved: Some(7),
        bytes_per_second: Some(65_536),
    };
    config.unproved_limits = [("doom".to_owned(), quota)].into();
    let limits = config.unproved_limits_of();
    let doom = &limits["doom"];
    assert_eq!((doom.newcomers, doom.unproved, doom.bytes), (16, 7, 65_536));
    assert_eq!(limits.get("lobby"), None);
}

#[test]
fn the_configurations_in_the_docs_are_valid() {
    let page = include_str!("../../../../../docs/mesh.md");
    let blocks = page.split("```json\n").skip(1);
    let blocks = blocks.filter_map(|rest| Some(rest.split_once("```")?.0));
    let (files, parts): (Vec<&str>, Vec<&str>) =
        blocks.partition(|block| block.contains("identity_file"));
    assert_eq!((files.len(), parts.len()), (3, 3));
    // A part replaces fields of one of the files.
    let object = |text: &str| {
        serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).unwrap()
    };
    for part in parts {
        let fault_with = |file: &&str| {
            let mut merged = object(file);
            merged.append(&mut object(part));
            let merged: FileConfig = serde_json::from_value(merged.into()).unwrap();
            merged.fault()
        };
        assert!(
            files.iter().any(|file| fault_with(file).is_none()),
            "{part}"
        );
    }
    let files = files.iter().map(|text| serde_json::from_str(text).unwrap());
    let files: Vec<FileConfig> = files.collect();
    let page = include_str!("../../../../../docs/operations.md");
    let (_, rest) = page.split_once("```json\n").unwrap();
    let (lisbon, _) = rest.split_once("```").unwrap();
    let signed: FileConfig = serde_json::from_str(lisbon).unwrap();
    assert!(signed.signed.is_some() && signed.admin.is_some());
    for file in files.into_iter().chain([signed]) {
        assert_eq!(file.fault(), None, "{}", file.name);
    }
}

#[test]
fn games_and_their_proxies_reach_the_node() {
    let mut sandbox = Sandbox::new(&[("one", FileRole::Entry)]).unwrap();
    let mut config = sandbox.config_mut(0).unwrap().clone();
    let none = config.setup(sandbox.directory()).unwrap();
    assert!(none.node.tcp.is_none(), "no TCP game, no socket for one");
    let both = [Protocol::Udp, Protocol::Tcp];
    config.games = both.map(|protocol| FileGame { protocol, ..doom() }).into();
    let text = r#"{"doom": {"from": ["10.0.0.0/8", "2001:db8::1"], "required": false, "protocol": "tcp"}}"#;
    config.proxies = serde_json::from_str(text).unwrap();
    config.limits.tcp_connections = Some(70);
    config.limits.tcp_per_address = Some(7);
    let setup = config.setup(sandbox.directory()).unwrap();
    let tcp = setup.node.tcp.unwrap();
    assert_eq!((&setup.node.games, tcp.games.len()), (&tcp.games, 1));
    assert_eq!(
        (tcp.tunnel.players_max, tcp.tunnel.per_address_max),
        (70, 7)
    );
    assert_eq!(tcp.connections_max, 70);
    assert_eq!(setup.tcp.connections_max, 70);
    let trusted = &setup.tcp.proxies["doom"];
    for (address, is_trusted) in [
        ("10.9.8.7", true),
        ("2001:db8::1", true),
        ("11.0.0.1", false),
    ] {
        let address = address.parse().unwrap();
        assert_eq!(trusted.is_trusted(address), is_trusted, "{address}");
        assert_eq!(trusted.judge(address, None), Ok(None));
    }
    let required: FileProxies = serde_json::from_str(r#"{"from": ["10.0.0.0/8"]}"#).unwrap();
    assert!(required.required);
}

#[test]
fn an_invalid_tcp_game_is_rejected_in_one_sentence() {
    let rule = |version, datagrams| ProxyRule {
        version: ProxyVersion(version),
        datagrams,
        ..ProxyRule::default()
    };
    let tcp = |proxy_header| {
        with(|game| {
            game.protocol = Protocol::Tcp;
            game.proxy_header = proxy_header;
        })
    };
    assert_eq!(tcp(None), None);
    assert_eq!(tcp(Some(rule(Version::One, HeaderTiming::First))), None);
    assert_faults([(
        tcp(Some(rule(Version::Two, HeaderTiming::Each))),
        "game \"doom\" uses TCP, but its \"proxy_header\" is for datagrams, or is version 1 \
             with extensions",
    )]);
}

fn before_doom(more: &str) -> BTreeMap<String, FileProxies> {
    let text = format!("{{\"doom\": {{\"from\": [\"10.0.0.0/8\"]{more}}}}}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn proxies_apply_to_a_name_or_to_one_protocol_of_it() {
    let mut sandbox = Sandbox::new(&[("one", FileRole::Entry)]).unwrap();
    let mut config = sandbox.config_mut(0).unwrap().clone();
    let both = [Protocol::Udp, Protocol::Tcp];
    config.games = both.map(|protocol| FileGame { protocol, ..doom() }).into();
    for (more, over) in [
        ("", [true, true]),
        (r#", "required": false"#, [true, true]),
        (r#", "protocol": "udp""#, [true, false]),
        (r#", "protocol": "tcp""#, [false, true]),
    ] {
        config.proxies = before_doom(more);
        let setup = config.setup(sandbox.directory()).unwrap();
        let found = [setup.node.proxies, setup.tcp.proxies];
        let found = found.map(|proxies| proxies.contains_key("doom"));
        assert_eq!(found, over, "{more}");
    }
}

/// The protocol is known only from the document.
#[test]
fn proxies_without_a_protocol_apply_to_both_of_a_documents_game() {
    let mut sandbox = Sandbox::new(&[("one", FileRole::Entry)]).unwrap();
    let mut config = sandbox.config_mut(0).unwrap().clone();
    config.members = None;
    let key = Identity::generate(&mut Ring::new()).unwrap();
    config.signed = Some(FileSigned {
        network: "test".to_owned(),
        admins: AdminKeys::new([*key.public_key()], 1).unwrap(),
        store: "store".into(),
        minimum: None,
        listen: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
    });
    for more in ["", r#", "required": false"#] {
        config.proxies = before_doom(more);
        let setup = config.setup(sandbox.directory()).unwrap();
        for proxies in [setup.node.proxies, setup.tcp.proxies] {
            assert!(proxies["doom"].is_trusted([10, 9, 8, 7].into()), "{more}");
        }
    }
    config.proxies = before_doom(r#", "required": false, "protocol": "udp""#);
    let fault = config.proxies_fault().map(|fault| fault.text);
    assert_eq!(fault.as_deref(), Some(NOT_REQUIRED));
}

/// The fault of UDP proxies.
const NOT_REQUIRED: &str = "\"proxies\" of \"doom\" have \"required\": false, but over UDP each datagram \
                            must begin with a header";

#[test]
fn invalid_proxies_are_rejected_in_one_sentence() {
    let before = |protocol, more: &str| {
        let proxies = before_doom(more);
        fault_of(|config, mut game| {
            game.protocol = protocol;
            config.games = vec![game];
            config.proxies = proxies;
        })
    };
    let elsewhere = fault_of(|config, mut game| {
        game.name = "chess".to_owned();
        config.games = vec![game];
        config.proxies = before_doom("");
    });
    let (udp, tcp) = (Protocol::Udp, Protocol::Tcp);
    for (protocol, more) in [
        (udp, ""),
        (udp, r#", "protocol": "udp""#),
        (tcp, r#", "protocol": "tcp", "required": false"#),
        (tcp, r#", "required": false"#),
    ] {
        assert_eq!(before(protocol, more), None, "{more}");
    }
    assert_faults([
        (
            elsewhere,
            "\"proxies\" of \"doom\" match no game with \"listen\" here",
        ),
        (
            before(udp, r#", "protocol": "tcp""#),
            "\"proxies\" of \"doom\" match no TCP game with \"listen\" here",
        ),
        (
            before(tcp, r#", "protocol": "udp""#),
            "\"proxies\" of \"doom\" match no UDP game with \"listen\" here",
        ),
        (
            before(udp, r#", "protocol": "udp", "required": false"#),
            NOT_REQUIRED,
        ),
        (before(udp, r#", "required": false"#), NOT_REQUIRED),
    ]);
    let unreadable = fault_of(|config, game| {
        config.games = vec![game];
        let text = r#"{"doom": {"from": ["10.0.0.0/33"]}}"#;
        config.proxies = serde_json::from_str(text).unwrap();
    });
    assert!(unreadable.unwrap().contains("10.0.0.0/33"));
}
