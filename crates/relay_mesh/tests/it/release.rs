//! Released labels: an ended flow frees its labels at once, and no node can release another's.

use std::collections::BTreeSet;

use netsim::{Chance, Loss, for_each_seed, test_site};
use relay_mesh::Mode;
use relay_mesh::hop::LabelName;
use relay_mesh::message::code;
use relay_mesh::route_request::{Granted, RouteRelease, RouteReply, RouteRequest};
use wire::Seed;

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, ms};
use crate::many_players::{gather, silence};
use crate::member::Harness;

/// Number of labels that each node has granted.
fn labels(mesh: &Mesh) -> Vec<u32> {
    let nodes = 0..mesh.nodes.len();
    nodes
        .map(|index| mesh.process(index).node.labels())
        .collect()
}

/// Released labels that were freed, and those that were not, over all nodes.
fn given_back(mesh: &Mesh) -> (u64, u64) {
    let stats = (0..mesh.nodes.len()).map(|index| mesh.process(index).node.stats());
    stats.fold((0, 0), |(freed, refused), stats| {
        (
            freed + stats.labels_given_back,
            refused + stats.releases_refused,
        )
    })
}

#[test]
fn sim_labels_of_ended_flows_are_given_back_under_loss() {
    for_each_seed(&test_site!(), 3, |seed| {
        for mode in [Mode::Single, Mode::Shadow] {
            let shape = Shape {
                mode,
                idle: 3,
                ..Shape::default()
            };
            let mut mesh = Mesh::new(seed, &shape);
            let all: Vec<_> = mesh.nodes.iter().map(|node| node.index()).collect();
            mesh.world.change_links(&all, &all, |link| {
                link.with_loss(Loss::Bernoulli(Chance::percent(2)))
            });
            mesh.run(START + 5_000);
            let alone = labels(&mesh);
            let many_players = gather(&mut mesh, 100, ms(200));
            mesh.run(8_000);
            let crowded = labels(&mesh);
            // Each flow has a label at each end, and at each relay of its paths.
            assert!(
                crowded[..RELAY].iter().all(|held| *held >= 100),
                "{crowded:?}"
            );
            // Labels of the other players, the player and probes: one at each end and two at the
            // relay of the path in use.
            let all = crowded.iter().sum::<u32>();
            assert!(all >= 4 * 102, "{crowded:?}");
            let relayed = |labels: &[u32]| labels[RELAY..].iter().sum::<u32>();
            let of_crowd = u64::from(relayed(&crowded) - relayed(&alone));
            assert!(of_crowd >= 100, "{crowded:?}");
            silence(&mut mesh, many_players);
            // They are idle after 3 s, which is checked every second.
            mesh.run(4_000 + 1_500);
            let left = labels(&mesh);
            // One flow and the probes, on each of at most four paths.
            assert!(left.iter().all(|left| *left <= 8), "{mode:?} {left:?}");
            assert_eq!(mesh.player().faults, 0);
            // Unused paths are closed entirely.
            mesh.stop_player();
            mesh.run(8_000);
            assert_eq!(labels(&mesh), [0; 5], "{mode:?}");
            // All labels that relays had granted. A remote end may have ended the flows of a path
            // that was closed just before.
            let (freed, refused) = given_back(&mesh);
            assert!(freed >= of_crowd && refused < freed, "{freed} {refused}");
        }
    });
}

#[test]
fn labels_of_flows_that_end_together_are_released_in_parts() {
    let shape = Shape {
        mode: Mode::Single,
        idle: 3,
        ..Shape::default()
    };
    let mut mesh = Mesh::new(Seed::from_number(73), &shape);
    mesh.run(START + 3_000);
    let many_players = gather(&mut mesh, 900, ms(300));
    mesh.run(8_000);
    let crowded: Vec<u32> = labels(&mesh);
    let most = (RELAY..crowded.len()).max_by_key(|index| crowded[*index]);
    let (most, before) = most.map(|index| (index, crowded[index])).unwrap();
    assert!(before >= 900, "{crowded:?}");
    silence(&mut mesh, many_players);
    let freed = |mesh: &Mesh| mesh.process(most).node.stats().labels_given_back;
    let mut parts = Vec::new();
    for _ in 0..80 {
        let before = freed(&mesh);
        mesh.run(100);
        parts.push(freed(&mesh) - before);
    }
    // At most two messages of 64 labels per 100 ms from each end, however many are queued.
    assert!(parts.iter().all(|part| *part <= 2 * 128), "{parts:?}");
    assert!(parts.contains(&(2 * 128)), "{parts:?}");
    assert!(parts.iter().sum::<u64>() >= 2 * 900, "{parts:?}");
}

#[test]
fn sim_an_abandoned_path_is_released_without_loss() {
    for_each_seed(&test_site!(), 3, |seed| {
        for mode in [Mode::Single, Mode::Shadow, Mode::Dup] {
            let shape = Shape {
                mode,
                rate: 240,
                ..Shape::default()
            };
            let mut mesh = Mesh::new(seed, &shape);
            let all: Vec<_> = mesh.nodes.iter().map(|node| node.index()).collect();
            mesh.world.change_links(&all, &all, |link| {
                link.with_reorder(Chance::percent(20), ms(20))
            });
            mesh.run(START + 3_000);
            // With such delays the nearest relay is not always found at once.
            let there = mesh.route();
            let mut relays = RELAY..mesh.nodes.len();
            let used = relays.find(|relay| there == Some(mesh.path(&[*relay])));
            let used = used.expect("a path over one relay");
            let sent = mesh.player().sent() - 120;
            let relay = mesh.nodes[used];
            mesh.world
                .apply(relay, |process, now| process.node.drain(now));
            mesh.run(5_000);
            assert_ne!(mesh.route(), there, "{mode:?}");
            assert_eq!(labels(&mesh)[used], 0, "{mode:?}");
            assert!(mesh.process(used).node.draining().unwrap().is_done());
            mesh.stop_player();
            mesh.run(1_000);
            assert_eq!(mesh.player().missing_from(sent), 0, "{mode:?}");
        }
    });
}

#[test]
fn sim_labels_granted_before_a_restart_are_not_released_to_it() {
    for_each_seed(&test_site!(), 3, |seed| {
        let mut mesh = Mesh::new(seed, &Shape::default());
        mesh.run(START + 3_000);
        for life in 1..4 {
            mesh.kill(RELAY);
            mesh.run(700 * life);
            mesh.restart(RELAY, life);
            mesh.run(20_000);
            let stats = mesh.process(RELAY).node.stats();
            assert_eq!(stats.releases_refused, 0);
            let now = mesh.now();
            let from = now.saturating_sub(ms(2_000));
            assert!(mesh.player().gap(from, now) < ms(100));
        }
        assert_eq!(mesh.process(ENTRY).closed_flows(), []);
    });
}

fn give_back(harness: &mut Harness, names: impl IntoIterator<Item = LabelName>) {
    let mut message = Vec::new();
    RouteRelease::new(names).unwrap().encode(&mut message);
    harness.transmit(&message);
    harness.mesh.run(200);
}

fn reserve(harness: &mut Harness, count: u8) -> Vec<Granted> {
    let previous = harness.own;
    match harness.ask(&RouteRequest::ReserveTransit { previous, count }) {
        RouteReply::Done(granted) => granted,
        RouteReply::Refused(why) => panic!("{why:?}"),
    }
}

#[test]
fn mesh_a1_a_member_frees_no_label_that_is_not_its_own() {
    let mut harness = Harness::with(71, &Shape::default());
    let counts = |harness: &Harness| {
        let node = &harness.mesh.process(RELAY).node;
        let stats = node.stats();
        (
            node.labels(),
            stats.labels_given_back,
            stats.releases_refused,
        )
    };
    let (before, given_back, _) = counts(&harness);
    assert!(before > 0, "others have labels");
    let own = reserve(&mut harness, 3);
    assert_eq!(counts(&harness).0, before + 3);
    let is_own = |name: &LabelName| own.iter().any(|granted| granted.label == *name);
    // Tries every possible label of others.
    let mut tried = 0;
    for generation in 0..4 {
        let names = (0..64).map(|slot| LabelName { slot, generation });
        let names: Vec<_> = names.filter(|name| !is_own(name)).collect();
        tried += u64::try_from(names.len()).unwrap();
        give_back(&mut harness, names);
    }
    assert_eq!(counts(&harness), (before + 3, given_back, tried));
    // Its own labels are freed once, by the first message that names them.
    give_back(&mut harness, own.iter().map(|granted| granted.label));
    assert_eq!(counts(&harness), (before, given_back + 3, tried));
    give_back(&mut harness, own.iter().map(|granted| granted.label));
    assert_eq!(counts(&harness), (before, given_back + 3, tried + 3));
    // Not even if the slots are in use again.
    let mut again = reserve(&mut harness, 60);
    let slots = |granted: &[Granted]| -> BTreeSet<u32> {
        granted.iter().map(|granted| granted.label.slot).collect()
    };
    let (used, mut freed) = (slots(&own), given_back + 3);
    for _ in 0..16 {
        if used.is_subset(&slots(&again)) {
            break;
        }
        give_back(&mut harness, again.iter().map(|granted| granted.label));
        freed += 60;
        again = reserve(&mut harness, 60);
    }
    assert!(used.is_subset(&slots(&again)), "{used:?}");
    give_back(&mut harness, own.iter().map(|granted| granted.label));
    assert_eq!(counts(&harness), (before + 60, freed, tried + 6));
    give_back(&mut harness, again.iter().map(|granted| granted.label));
    assert_eq!(counts(&harness).0, before);
    for broken in [&[code::ROUTE_RELEASE][..], &[code::ROUTE_RELEASE, 0]] {
        let malformed =
            |harness: &Harness| harness.mesh.process(RELAY).node.stats().messages_malformed;
        let counted = malformed(&harness);
        harness.transmit(broken);
        harness.mesh.run(200);
        assert_eq!(malformed(&harness), counted + 1);
    }
    let now = harness.mesh.now();
    let from = now.saturating_sub(ms(3_000));
    assert!(harness.mesh.player().gap(from, now) < ms(50));
    assert_eq!(harness.mesh.process(ENTRY).closed_flows(), []);
    assert_eq!(harness.mesh.process(EXIT).closed_flows(), []);
}

#[test]
fn mesh_a1_releases_of_a_member_are_rate_limited() {
    let shape = Shape {
        adjust: |_, config, _| config.request_rate = 16,
        ..Shape::default()
    };
    let mut harness = Harness::with(72, &shape);
    let node = |harness: &Harness| harness.mesh.process(RELAY).node.labels();
    let before = node(&harness);
    let own = reserve(&mut harness, 20);
    // A burst of 64, and 16 per second: the rest is not even looked up.
    let junk = (100..164).map(|slot| LabelName {
        slot,
        generation: 9,
    });
    give_back(&mut harness, junk);
    give_back(&mut harness, own.iter().map(|granted| granted.label));
    assert_eq!(node(&harness), before + 20);
    harness.mesh.run(2_000);
    give_back(&mut harness, own.iter().map(|granted| granted.label));
    assert_eq!(node(&harness), before);
}
