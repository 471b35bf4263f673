//! Distribution of signed configuration through a mesh, and its effect on nodes.

use core::net::SocketAddr;

use crypto::{Identity, Provider};
use netsim::provider::SimProvider;
use netsim::{Chance, Loss, for_each_seed, test_site};
use relay_mesh::route_request::{Refused as MayNot, RouteReply, RouteRequest};
use relay_mesh::signed_config::{
    AdminKeys, ConfigMessage, Envelope, HeldVersion, Holder, LeftOut, Offered, Piece, Refused,
};
use relay_mesh::{Config, Event, FlowEnd, Signed};
use wire::{NodeId, Seed};

use crate::detour::part;
use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, game, link, ms, server, shape};
use crate::member::Harness;

/// The admin, or another signer if the number differs.
fn admin(number: u64) -> (SimProvider, Identity) {
    let mut provider = SimProvider::new(Seed::from_number(number));
    let identity = Identity::generate(&mut provider).unwrap();
    (provider, identity)
}

fn holder() -> Holder {
    let (_, admin) = admin(5);
    Holder::new("test", AdminKeys::new([*admin.public_key()], 1).unwrap())
}

/// The version report of a node with a document of this version, signed with the admin's keys.
fn reported(version: u64) -> HeldVersion {
    HeldVersion {
        version,
        ..holder().held_version()
    }
}

/// The initial state of each node: no game, and the admin's key.
pub(crate) fn signed(index: usize, config: &mut Config, _: &[NodeId]) {
    let listen = if index == ENTRY {
        vec![game().ip()]
    } else {
        Vec::new()
    };
    config.games = Vec::new();
    config.signed = Some(Signed {
        holder: holder(),
        listen,
    });
}

pub(crate) const ALL: &str = "{\"type\":\"all\"}";

/// The JSON of the harness's game, or of another game on this port.
pub(crate) fn rule(name: &str, port: u16, entry: &str, exit: &str) -> String {
    let server = server();
    format!(
        "{{\"name\":\"{name}\",\"protocol\":\"udp\",\"server\":\"{server}\",\
         \"listen_ports\":[{port}],\"entry\":{entry},\"exit\":{exit}}}"
    )
}

pub(crate) fn echo() -> String {
    rule("echo", game().port(), ALL, ALL)
}

/// A document with these games, and with `more` in front of them.
fn document(version: u64, more: &str, games: &[String], signer: u64) -> Vec<u8> {
    document_by(version, more, games, (5, &[signer]))
}

/// The same, signed by several signers, and with the key of the admin that signs the next document.
fn document_by(
    version: u64,
    more: &str,
    games: &[String],
    (next, signers): (u64, &[u64]),
) -> Vec<u8> {
    let games = games.join(",");
    let (_, named) = admin(next);
    let text = format!(
        "{{\"network\":\"test\",\"version\":{version},\"not_before\":0,\
         \"not_after\":9007199254740991,\"admins\":{{\"threshold\":1,\"keys\":[\"{}\"]}},{more}\
         \"games\":[{games}]}}",
        named.public_key()
    );
    let mut envelope = Envelope::new(text.into_bytes()).unwrap();
    for &signer in signers {
        let (mut provider, identity) = admin(signer);
        let key = provider.signing_key(&identity).unwrap();
        let public = *identity.public_key();
        envelope.sign(&mut provider, &key, public).unwrap();
    }
    let mut bytes = Vec::new();
    envelope.encode(&mut bytes);
    bytes
}

/// A game of either source reaches its exit over relays if it is not reachable directly.
#[test]
fn sim_ends_of_a_signed_game_without_a_direct_path_play_over_a_relay() {
    for_each_seed(&test_site!(), 4, |seed| {
        let mut mesh = Mesh::new(seed, &shape(signed));
        part(&mut mesh);
        mesh.run(START - 2_000);
        put_games(&mut mesh, 1, &[echo()]);
        mesh.run(20_000);
        let now = mesh.now();
        assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
        assert!(mesh.player().gap(now.saturating_sub(ms(5_000)), now) <= ms(50));
    });
}

fn put(mesh: &mut Mesh, index: usize, bytes: &[u8]) -> Offered {
    let node = mesh.nodes[index];
    let mut offered = None;
    mesh.world.apply(node, |process, now| {
        offered = process.node.offer_config(now, bytes);
    });
    offered.expect("a clock and a place for it")
}

pub(crate) fn put_games(mesh: &mut Mesh, version: u64, games: &[String]) {
    let offered = put(mesh, RELAY, &document(version, "", games, 5));
    assert!(matches!(offered, Offered::Accepted(_)), "{offered:?}");
}

fn version(mesh: &Mesh, index: usize) -> u64 {
    let document = mesh.process(index).node.document();
    document.map_or(0, |document| document.version)
}

fn versions(mesh: &Mesh) -> Vec<u64> {
    (0..mesh.nodes.len())
        .map(|index| version(mesh, index))
        .collect()
}

fn events<'a, T>(mesh: &'a Mesh, index: usize, of: impl Fn(&'a Event) -> Option<T>) -> Vec<T> {
    let events = mesh.process(index).events.iter();
    events.filter_map(|(_, event)| of(event)).collect()
}

fn listening(mesh: &Mesh) -> Vec<SocketAddr> {
    events(mesh, ENTRY, |event| {
        if let Event::Listening { address, .. } = event {
            Some(*address)
        } else {
            None
        }
    })
}

#[test]
fn pg12_a_signed_document_is_in_force_everywhere_within_a_second() {
    let mut mesh = Mesh::new(Seed::from_number(1), &shape(signed));
    mesh.run(START - 2_000);
    assert_eq!(versions(&mesh), [0; 5]);
    let forged = put(&mut mesh, EXIT, &document(9, "", &[echo()], 6));
    assert_eq!(forged, Offered::Refused(Refused::UnknownKey));
    put_games(&mut mesh, 1, &[echo()]);
    mesh.run(1_000);
    assert_eq!(
        versions(&mesh),
        [1; 5],
        "and of the forged one nobody heard"
    );
    mesh.run(4_000);
    assert_eq!(mesh.player().faults, 0);
    let now = mesh.now();
    assert!(mesh.player().gap(now.saturating_sub(ms(2_000)), now) < ms(50));
    let stats = mesh.process(EXIT).node.config_stats().unwrap();
    assert_eq!((stats.accepted, stats.unknown_key), (1, 1));
    let stored: Vec<_> = (0..5)
        .map(|index| mesh.process(index).node.stored_config().unwrap())
        .collect();
    assert!(stored.windows(2).all(|pair| pair[0] == pair[1]));
    let (provider, admin) = admin(5);
    let anchor = AdminKeys::new([*admin.public_key()], 1).unwrap();
    let restored = Holder::restore("test", anchor, &provider, &stored[0]).unwrap();
    assert_eq!(restored.version(), 1);
}

#[test]
fn pg13_a_change_of_one_game_affects_no_players_of_others() {
    let mut mesh = Mesh::new(Seed::from_number(2), &shape(signed));
    mesh.run(START - 2_000);
    put_games(&mut mesh, 1, &[echo()]);
    mesh.run(4_000);
    let at = mesh.now();
    let tcp = rule("web", 80, ALL, ALL).replace("udp", "tcp");
    let other = |port| rule("other", port, ALL, ALL);
    put_games(&mut mesh, 2, &[other(4_000), echo(), tcp]);
    mesh.run(1_000);
    let first = SocketAddr::new(game().ip(), 4_000);
    assert_eq!(listening(&mesh), [game(), first]);
    let left_out = events(&mesh, ENTRY, |event| {
        if let Event::GameLeftOut { game, why } = event {
            Some((game.as_str(), *why))
        } else {
            None
        }
    });
    assert_eq!(left_out, [("web", LeftOut::Tcp)]);
    let sockets = mesh.process(ENTRY).sockets();
    put_games(&mut mesh, 3, &[other(4_001), echo()]);
    mesh.run(1_000);
    assert_eq!(
        listening(&mesh),
        [game(), first, SocketAddr::new(game().ip(), 4_001)]
    );
    assert_eq!(
        mesh.process(ENTRY).sockets(),
        sockets,
        "one opened, one closed"
    );
    put_games(&mut mesh, 4, &[echo()]);
    mesh.run(1_000);
    assert_eq!(mesh.process(ENTRY).sockets(), sockets - 1);
    assert_eq!(versions(&mesh), [4; 5]);
    assert_eq!(mesh.process(ENTRY).closed_flows(), []);
    assert!(mesh.player().gap(at, mesh.now()) < ms(50), "nobody noticed");

    put_games(&mut mesh, 5, &[other(4_000)]);
    mesh.run(1_000);
    assert_eq!(mesh.process(ENTRY).closed_flows(), [FlowEnd::Local]);
    assert_eq!(mesh.process(EXIT).closed_flows(), [FlowEnd::Local]);
    assert_eq!(
        mesh.process(EXIT).sockets(),
        1,
        "its upstream socket is closed"
    );
    put_games(&mut mesh, 6, &[echo(), other(4_000)]);
    mesh.run(2_000);
    let now = mesh.now();
    assert!(
        mesh.player().gap(now.saturating_sub(ms(1_000)), now) < ms(50),
        "it is back"
    );
}

/// A busy port is reported and retried. Other games work: P9.
#[test]
fn pg13_pgd_p9_a_busy_port_keeps_no_other_game_from_working() {
    let mut mesh = Mesh::new(Seed::from_number(3), &shape(signed));
    mesh.run(START - 2_000);
    put_games(&mut mesh, 1, &[echo()]);
    mesh.run(1_000);
    let entry = mesh.nodes[ENTRY];
    mesh.world
        .apply(entry, |process, _| process.sockets_max = process.sockets());
    put_games(&mut mesh, 2, &[rule("a", 4_000, ALL, ALL), echo()]);
    mesh.run(1_000);
    let failed = events(&mesh, ENTRY, |event| {
        if let Event::ListenFailed { game, .. } = event {
            Some(game.as_str())
        } else {
            None
        }
    });
    assert_eq!(failed, ["a"]);
    mesh.world
        .apply(entry, |process, _| process.sockets_max = usize::MAX);
    mesh.run(5_000);
    assert_eq!(listening(&mesh).len(), 2, "tried again");
    let now = mesh.now();
    assert!(mesh.player().gap(now.saturating_sub(ms(2_000)), now) < ms(50));
    put_games(&mut mesh, 3, &[echo()]);
    mesh.run(1_000);
    assert_eq!(versions(&mesh), [3; 5], "a later update goes through");
}

#[test]
fn pg14_pgd_p12_absent_and_new_nodes_get_it_from_any_neighbour() {
    let mut mesh = Mesh::new(Seed::from_number(4), &shape(signed));
    mesh.run(START - 2_000);
    mesh.kill(EXIT);
    mesh.run(500);
    put_games(&mut mesh, 7, &[echo()]);
    mesh.run(500);
    mesh.kill(RELAY);
    // It restarts empty: the harness gives it only the admin's key.
    mesh.restart(EXIT, 1);
    mesh.run(16_000);
    assert_eq!(version(&mesh, EXIT), 7);
    let now = mesh.now();
    assert!(mesh.player().gap(now.saturating_sub(ms(1_000)), now) < ms(50));
}

#[test]
fn pg11_a_node_barred_by_the_document_forwards_nothing() {
    let mut mesh = Mesh::new(Seed::from_number(5), &shape(signed));
    mesh.run(START - 2_000);
    put_games(&mut mesh, 1, &[echo()]);
    mesh.run(4_000);
    assert_eq!(mesh.world[mesh.server].sources.len(), 1);
    let barred = format!("{{\"type\":\"black\",\"nodes\":[\"{}\"]}}", mesh.ids[EXIT]);
    put_games(&mut mesh, 2, &[rule("echo", game().port(), ALL, &barred)]);
    mesh.run(1_000);
    assert_eq!(mesh.process(ENTRY).closed_flows(), [FlowEnd::Local]);
    let answers = mesh.player().answers.len();
    mesh.run(3_000);
    assert_eq!(mesh.player().answers.len(), answers);
    assert_eq!(mesh.world[mesh.server].sources.len(), 1);
    let allowed = format!("{{\"nodes\":[\"{}\"],\"type\":\"white\"}}", mesh.ids[EXIT]);
    put_games(&mut mesh, 3, &[rule("echo", game().port(), ALL, &allowed)]);
    mesh.run(3_000);
    assert!(mesh.player().answers.len() > answers + 60);
}

/// The entry follows its own file, and sends players anyway.
#[test]
fn pg11_an_exit_refuses_the_players_of_an_entry_that_is_not_listed() {
    let mut mesh = Mesh::new(
        Seed::from_number(6),
        &shape(|index, config, ids| {
            if index != ENTRY {
                signed(index, config, ids);
            }
        }),
    );
    mesh.run(START - 2_000);
    let barred = format!("{{\"type\":\"black\",\"nodes\":[\"{}\"]}}", mesh.ids[ENTRY]);
    put_games(&mut mesh, 1, &[rule("echo", game().port(), &barred, ALL)]);
    mesh.run(6_000);
    let refused = mesh.process(ENTRY).closed_flows();
    assert!(!refused.is_empty() && refused.iter().all(|end| *end == FlowEnd::Refused));
    assert_eq!(mesh.world[mesh.server].sources.len(), 0);
    put_games(&mut mesh, 2, &[echo()]);
    mesh.run(4_000);
    assert_eq!(mesh.world[mesh.server].sources.len(), 1);
}

#[test]
fn pg11_a_relay_gives_labels_to_ends_of_games_alone() {
    let mut harness = Harness::with(8, &shape(signed));
    let reserve = RouteRequest::ReserveTransit {
        previous: harness.own,
        count: 1,
    };
    let mut may_pass = |list: &dyn Fn(NodeId) -> [String; 2], version| {
        let [entry, exit] = list(harness.own);
        let games = [rule("echo", game().port(), &entry, &exit)];
        put_games(&mut harness.mesh, version, &games);
        harness.mesh.run(1_000);
        match harness.ask(&reserve) {
            RouteReply::Done(granted) => granted.len() == 1,
            RouteReply::Refused(why) => why != MayNot::Policy,
        }
    };
    let list = |kind: &str, node| format!("{{\"type\":\"{kind}\",\"nodes\":[\"{node}\"]}}");
    assert!(may_pass(&|_| [ALL.into(), ALL.into()], 1));
    assert!(!may_pass(
        &|own| [list("black", own), list("black", own)],
        2
    ));
    assert!(may_pass(&|own| [list("black", own), ALL.into()], 3));
    assert!(may_pass(&|own| [list("white", own), list("black", own)], 4));
    assert_eq!(harness.stats().policy, 1);
}

#[test]
fn pg11_links_to_a_removed_relay_are_closed() {
    let mut mesh = Mesh::new(Seed::from_number(7), &shape(signed));
    mesh.run(START - 2_000);
    put_games(&mut mesh, 1, &[echo()]);
    mesh.run(4_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY])));
    let member = |index: usize, role: &str| {
        let id = mesh.ids[index];
        format!("{{\"node\":\"{id}\",\"roles\":[\"{role}\"]}}")
    };
    let members = [
        member(ENTRY, "entry"),
        member(EXIT, "exit"),
        member(RELAY + 1, "relay"),
        member(RELAY + 2, "relay"),
    ];
    let members = format!("\"members\":[{}],", members.join(","));
    let at = mesh.now();
    let offered = put(&mut mesh, ENTRY, &document(2, &members, &[echo()], 5));
    assert!(matches!(offered, Offered::Accepted(_)));
    mesh.run(5_000);
    assert_eq!(mesh.route(), Some(mesh.path(&[RELAY + 1])));
    assert_eq!(mesh.process(ENTRY).closed_flows(), []);
    assert!(mesh.player().gap(at, mesh.now()) < ms(1_000));
    for index in [ENTRY, EXIT, RELAY + 1] {
        let links = mesh.process(index).node.links();
        assert_eq!(links.filter(|link| link.node == mesh.ids[RELAY]).count(), 0);
    }
}

#[test]
fn sim_pg12_a_large_document_spreads_under_loss() {
    for_each_seed(&test_site!(), 3, |seed| {
        let mut mesh = Mesh::new(seed, &shape(signed));
        let lossy = link(40).with_loss(Loss::Bernoulli(Chance::per_million(50_000)));
        let nodes = mesh.nodes.clone();
        for (index, &one) in nodes.iter().enumerate() {
            for &other in &nodes[index + 1..] {
                mesh.world.set_links(one, other, lossy);
            }
        }
        mesh.run(START - 2_000);
        let games: Vec<String> = (0..900)
            .map(|number| rule(&format!("game{number}"), 4_000, ALL, ALL).replace("udp", "tcp"))
            .chain([echo()])
            .collect();
        put_games(&mut mesh, 1, &games);
        mesh.run(20_000);
        assert_eq!(versions(&mesh), [1; 5]);
        put_games(&mut mesh, 2, &[echo()]);
        mesh.run(10_000);
        assert_eq!(versions(&mesh), [2; 5]);
    });
}

#[test]
fn pgx7_a_false_highest_version_delays_nothing() {
    let mut harness = Harness::with(8, &shape(signed));
    let mut message = Vec::new();
    ConfigMessage::Version(reported(u64::MAX)).encode(&mut message);
    harness.transmit(&message);
    harness.mesh.run(500);
    let mesh = &mut harness.mesh;
    let offered = put(mesh, EXIT, &document(1, "", &[echo()], 5));
    assert!(matches!(offered, Offered::Accepted(_)));
    mesh.run(6_500);
    assert_eq!(
        versions(mesh),
        [1; 5],
        "the relay that it lied to waited 5 s"
    );
    let later = document(2, "", &[echo()], 5);
    let offered = put(mesh, EXIT, &later);
    assert!(matches!(offered, Offered::Accepted(_)));
    mesh.run(1_000);
    assert_eq!(versions(mesh), [2; 5], "and the second time not at all");
}

/// Documents offered by a neighbour and through the admin interface, at every node: P10.
#[test]
fn pg12_pgd_p10_refused_documents_block_no_later_ones() {
    let mut harness = Harness::with(10, &shape(signed));
    let forged = document(9, "", &[echo()], 6);
    let piece = Piece::cut(9, &forged, 0).unwrap();
    for message in [
        ConfigMessage::Version(reported(9)),
        ConfigMessage::Piece(piece),
    ] {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        harness.transmit(&bytes);
        harness.mesh.run(500);
    }
    let mesh = &mut harness.mesh;
    let stats = mesh.process(RELAY).node.config_stats().unwrap();
    assert_eq!((stats.unknown_key, stats.accepted), (1, 0), "{stats:?}");
    let first = put(mesh, EXIT, &document(1, "", &[echo()], 5));
    assert!(matches!(first, Offered::Accepted(_)), "{first:?}");
    mesh.run(1_000);
    assert_eq!(versions(mesh), [1; 5]);
    for version in 2..=4 {
        let mut changed = document(100, "", &[echo()], 5);
        *changed.last_mut().unwrap() = b' ';
        // Another document with the current version, and a truncated one.
        let old = document(version - 1, "", &[], 5);
        let part = old[..200].to_vec();
        for bytes in [&forged, &changed, &old, &part] {
            for index in 0..mesh.nodes.len() {
                let offered = put(mesh, index, bytes);
                assert!(matches!(offered, Offered::Refused(_)), "{offered:?}");
            }
        }
        // The relay fetches it from nodes that did not have the forged one.
        let offered = put(mesh, EXIT, &document(version, "", &[echo()], 5));
        assert!(matches!(offered, Offered::Accepted(_)), "{offered:?}");
        mesh.run(1_000);
        assert_eq!(versions(mesh), [version; 5]);
    }
}

#[test]
fn a_node_without_a_store_accepts_no_document() {
    let mut mesh = Mesh::new(Seed::from_number(9), &Shape::default());
    mesh.run(1_000);
    let bytes = document(1, "", &[echo()], 5);
    let entry = mesh.nodes[ENTRY];
    mesh.world.apply(entry, |process, now| {
        assert_eq!(process.node.offer_config(now, &bytes), None);
    });
    assert_eq!(versions(&mesh), [0; 5]);
}

/// A document with a much higher version, signed with the first key after that key was retired.
fn forged() -> Vec<u8> {
    document(1 << 32, "", &[rule("evil", 4_000, ALL, ALL)], 5)
}

/// The exit starts with it. It knows only the first key, and has met no other node.
fn captured(index: usize, config: &mut Config, ids: &[NodeId]) {
    signed(index, config, ids);
    if index == EXIT
        && let Some(signed) = &mut config.signed
    {
        let (provider, _) = admin(5);
        signed.holder = holder().load(&provider, &forged()).unwrap();
    }
}

#[test]
fn a_node_with_a_document_of_a_retired_key_is_updated_by_neighbours() {
    let mut mesh = Mesh::new(Seed::from_number(11), &shape(captured));
    mesh.kill(EXIT);
    mesh.run(START - 2_000);
    for (version, by) in [(1, (5, &[5][..])), (10, (6, &[5, 6])), (11, (6, &[6]))] {
        let offered = put(&mut mesh, RELAY, &document_by(version, "", &[echo()], by));
        assert!(matches!(offered, Offered::Accepted(_)), "{offered:?}");
    }
    mesh.run(1_000);
    mesh.restart(EXIT, 1);
    assert_eq!(version(&mesh, EXIT), 1 << 32);
    mesh.run(16_000);
    assert_eq!(versions(&mesh), [11; 5]);
    for index in 0..mesh.nodes.len() {
        // No node fetched the document signed with the retired key.
        let stats = mesh.process(index).node.config_stats().unwrap();
        assert_eq!(stats.retired_key, 0, "{index}");
    }
    let offered = put(&mut mesh, EXIT, &forged());
    let retired = Refused::RetiredKey { since: 10 };
    assert_eq!(offered, Offered::Refused(retired));
}
