//! Worlds of dozens to hundreds of whole nodes, more than a node has link slots: how they choose
//! neighbours, and how faults affect that.
//!
//! The environment variable `NODES` sets the size of the largest world. The default is 100.

mod failure_detection;
pub(crate) mod many_nodes;
mod silent_peers;

use std::collections::BTreeSet;

use netsim::{Chance, Loss, Verdict, for_each_seed, test_site};

use relay_mesh::link_state::Roles;

use self::many_nodes::{ENTRY, EXIT, ManyNodes, nodes};
use crate::harness::ms;

#[test]
fn sim_pgx13_forty_nodes_of_16_links_each_are_one_network() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut many_nodes = ManyNodes::new(seed, 40, |_| 16);
        many_nodes.run_checked(60);
        many_nodes.show("40 nodes begin");
        many_nodes.run_checked(60);
        let look = many_nodes.show("40 nodes, settled");
        many_nodes.assert_all_known();
        many_nodes.assert_joined(4);
        many_nodes.assert_game();
        many_nodes.assert_entries();
        look.assert_calm();
    });
}

/// Seven entries, and an exit that reserves seven of its twelve slots for entries.
#[test]
fn sim_pgx13_an_exit_with_few_slots_reserves_them_for_entries() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut many_nodes = ManyNodes::new(seed, 40, |index| if index == EXIT { 12 } else { 16 });
        many_nodes.run_checked(60);
        for _ in 0..6 {
            many_nodes.run_checked(10);
            many_nodes.assert_entries();
        }
        many_nodes.show("40 nodes, a narrow exit");
        many_nodes.assert_game();
    });
}

#[test]
#[expect(clippy::print_stdout, reason = "a goal's figure is shown")]
fn sim_pgx13_hundreds_of_nodes_choose_their_neighbours() {
    for_each_seed(&test_site!(), 1, |seed| {
        let count = nodes(100);
        let links = if count > 300 { |_| 64 } else { |_| 24 };
        let mut many_nodes = ManyNodes::new(seed, count, links);
        let steps = if count > 300 { 10 } else { 6 };
        for step in 1..steps {
            many_nodes.run_checked(15);
            many_nodes.show(&format!("by the hundred, {} s", 15 * step));
        }
        many_nodes.run_checked(15);
        let look = many_nodes.show("by the hundred, settled");
        many_nodes.assert_all_known();
        many_nodes.assert_joined(4);
        many_nodes.assert_game();
        look.assert_calm();
        println!(
            "figure: whole{count} control_bytes_per_s {}",
            look.control_a_second()
        );
        println!(
            "figure: whole{count} probe_bytes_per_s {}",
            look.probes_a_second()
        );
        // Goals G1 and G2 for 1,000 nodes. A new mesh is still exploring.
        assert!(look.control_a_second() < 25_000, "{look}");
        assert!(look.probes_a_second() < 10_000, "{look}");
    });
}

/// Runs for a minute, with the cut after two thirds of it. With `NODES=1000` this is one minute of
/// a thousand nodes with 64 links each.
#[test]
fn sim_pgx13_with_hundreds_of_nodes_a_game_survives_the_loss_of_its_relay() {
    for_each_seed(&test_site!(), 1, |seed| {
        let count = nodes(60);
        let links = if count > 300 { |_| 64 } else { |_| 24 };
        let mut many_nodes = ManyNodes::new(seed, count, links);
        many_nodes.run_checked(40);
        many_nodes.show("by the hundred, before the cut");
        let relay = many_nodes.relay_in_use().expect("a game over relays");
        many_nodes.cut_off(relay);
        let cut_at = many_nodes.world.now();
        many_nodes.run_checked(20);
        many_nodes.show("by the hundred, after the cut");
        assert_ne!(many_nodes.relay_in_use(), Some(relay));
        let gap = many_nodes.world[many_nodes.player].gap(cut_at, many_nodes.world.now());
        assert!(gap < ms(500), "a silence of {gap:?}");
        many_nodes.assert_unbroken();
    });
}

#[test]
fn sim_pgx13_a_game_continues_while_a_fifth_of_the_nodes_is_replaced() {
    for_each_seed(&test_site!(), 2, |seed| {
        let mut many_nodes = ManyNodes::new(seed, 40, |_| 16);
        many_nodes.run_checked(60);
        for _ in 0..8 {
            let dead = many_nodes.draw().expect("a relay");
            many_nodes.kill(dead);
            many_nodes.bear();
            many_nodes.run_checked(1);
        }
        many_nodes.look();
        many_nodes.run_checked(90);
        let look = many_nodes.show("40 nodes, a fifth of them others");
        many_nodes.assert_all_known();
        many_nodes.assert_joined(4);
        many_nodes.assert_game();
        assert!(look.dials_a_minute() <= 30, "{look}");
        many_nodes.run_checked(30);
        many_nodes.show("30 s later").assert_calm();
    });
}

#[test]
fn sim_pgx13_partitioned_nodes_rejoin_over_flapping_and_lossy_lines() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut many_nodes = ManyNodes::new(seed, 40, |_| 16);
        many_nodes.run_checked(60);
        let (these, those) = many_nodes.cut_in_two();
        // Longer than the lifetime of records.
        many_nodes.run_checked(100);
        assert_eq!(many_nodes.known(ENTRY), these.len(), "one half");
        many_nodes.world.heal(&these, &those);
        lose_one_way(&mut many_nodes);
        many_nodes.look();
        flap(&mut many_nodes, 15);
        let look = many_nodes.show("40 nodes, of two halves");
        many_nodes.assert_all_known();
        many_nodes.assert_joined(4);
        many_nodes.assert_game();
        assert!(look.dials_a_minute() <= 40, "{look}");
    });
}

/// Each half has more nodes than a node links with, and lists so many links that no trial link gets
/// a digest. What the halves know of each other are names of the bootstrap list.
#[test]
fn sim_pgx13_halves_that_choose_their_neighbours_rejoin() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut many_nodes = ManyNodes::new(seed, 56, |_| 24);
        many_nodes.run_checked(40);
        let (these, those) = many_nodes.cut_in_two();
        // Longer than the lifetime of records.
        many_nodes.run_checked(100);
        assert_eq!(many_nodes.known(ENTRY), these.len(), "one half");
        many_nodes.world.heal(&these, &those);
        many_nodes.look();
        many_nodes.run_checked(45);
        let look = many_nodes.show("56 nodes, of two halves");
        many_nodes.assert_all_known();
        many_nodes.run_checked(30);
        many_nodes.assert_joined(4);
        many_nodes.assert_game();
        assert!(look.dials_a_minute() <= 40, "{look}");
    });
}

/// A node of the bootstrap list has sessions with all nodes, and publishes no record of itself.
#[test]
fn sim_pgx13_pgd_p17_halves_rejoin_with_a_mute_bootstrap_node() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut many_nodes =
            ManyNodes::with(seed, 56, |_| 24, Some(silent_peers::name(seed, 1_000)));
        let mute = silent_peers::join(&mut many_nodes, (seed, 1_000), 0..56, None);
        many_nodes.run_checked(40);
        let (these, those) = many_nodes.cut_in_two();
        many_nodes.run_checked(100);
        assert!(many_nodes.world[mute].app.up > 20, "it is there");
        assert_eq!(many_nodes.known(ENTRY), these.len() + 1, "one half, and it");
        many_nodes.world.heal(&these, &those);
        many_nodes.look();
        many_nodes.run_checked(60);
        assert_eq!(many_nodes.known(ENTRY), 57);
        many_nodes.run_checked(30);
        many_nodes.assert_joined(4);
        many_nodes.assert_game();
    });
}

/// Twice as many nodes as an exit has slots claim to be entries, and send nothing.
#[test]
fn sim_pgx13_entries_without_players_block_an_exit_only_briefly() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut many_nodes = ManyNodes::new(seed, 40, |index| if index == EXIT { 12 } else { 16 });
        let idle: Vec<_> = (0..14)
            .map(|number| {
                silent_peers::join(
                    &mut many_nodes,
                    (seed, 2_000 + number),
                    [EXIT],
                    Some(Roles::ENTRY),
                )
            })
            .collect();
        let mut seen = BTreeSet::new();
        let mut since = None;
        for round in 0..60 {
            many_nodes.run_checked(5);
            let inside = many_nodes.entries_in();
            // Before the fifth round it has no player either.
            if inside.contains(&ENTRY) && round >= 4 {
                since.get_or_insert(round);
            }
            if !inside.contains(&ENTRY) {
                assert_eq!(since, None, "who has a player lost its place");
            }
            seen.extend(inside);
        }
        let opened: usize = idle
            .iter()
            .map(|one| many_nodes.world[*one].app.opened)
            .sum();
        assert!(opened > 1_600, "they come again and again: {opened}");
        // Within 25 s of the player's start, since a turn lasts 20 s.
        assert!(since.is_some_and(|since| since <= 8), "{since:?}");
        assert_eq!(seen.len(), 7, "{seen:?}");
        many_nodes.assert_game();
    });
}

/// The node's sessions and their probes are as fast as before, but it delays what it forwards.
#[test]
fn sim_pgx13_the_game_leaves_a_node_that_lies() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut many_nodes = ManyNodes::new(seed, 40, |_| 16);
        many_nodes.run_checked(60);
        let byzantine = many_nodes.relay_in_use().expect("a game over relays");
        hold_up(&mut many_nodes, byzantine);
        many_nodes.run_checked(90);
        many_nodes.show("40 nodes, one of which lies");
        assert_ne!(many_nodes.relay_in_use(), Some(byzantine));
        many_nodes.assert_unbroken();
        many_nodes.assert_all_known();
        many_nodes.assert_joined(4);
    });
}

/// A few nodes that link with all others. One of them accepts four links.
#[test]
fn sim_pgx13_a_full_node_is_not_redialled_for_minutes() {
    for_each_seed(&test_site!(), 2, |seed| {
        let narrow = 5;
        let mut many_nodes = ManyNodes::new(seed, 12, |index| if index == 5 { 4 } else { 16 });
        many_nodes.run_checked(20);
        many_nodes.look();
        many_nodes.run_checked(180);
        let refused = many_nodes.node(narrow).stats().links_refused;
        assert!((7..60).contains(&refused), "{refused}");
        let look = many_nodes.show("12 nodes, one of them full");
        assert!(look.dials_a_minute() <= 2, "{look}");
        many_nodes.assert_all_known();
        assert!(many_nodes.node(narrow).links().count() >= 3);
    });
}

/// A tenth of the nodes die while others start, the mesh is partitioned, links flap and lose in one
/// direction, and the relay of the game lies.
#[test]
fn sim_pgx13_a_hundred_nodes_survive_random_faults() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut many_nodes = ManyNodes::new(seed, 100, |_| 24);
        many_nodes.run_checked(40);
        for _ in 0..10 {
            let dead = many_nodes.draw().expect("a relay");
            many_nodes.kill(dead);
            many_nodes.bear();
            many_nodes.run_checked(1);
        }
        let (these, those) = many_nodes.cut_in_two();
        // Longer than the lifetime of records.
        many_nodes.run_checked(100);
        let with_entry = |index: &usize| *index <= EXIT || index.is_multiple_of(2);
        let half = many_nodes.living().into_iter().filter(with_entry).count();
        assert_eq!(many_nodes.known(ENTRY), half, "one half");
        many_nodes.world.heal(&these, &those);
        lose_one_way(&mut many_nodes);
        many_nodes.look();
        flap(&mut many_nodes, 8);
        let look = many_nodes.show("100 nodes after deaths, births and a partition");
        many_nodes.assert_all_known();
        many_nodes.assert_joined(4);
        many_nodes.assert_game();
        assert!(look.dials_a_minute() <= 40, "{look}");

        let byzantine = many_nodes.relay_in_use().expect("a game over relays");
        hold_up(&mut many_nodes, byzantine);
        many_nodes.run_checked(45);
        many_nodes.show("100 nodes, one of which lies");
        assert_ne!(many_nodes.relay_in_use(), Some(byzantine));
        many_nodes.assert_unbroken();
        many_nodes.assert_all_known();
        many_nodes.assert_joined(4);
    });
}

/// Every fourth node loses a tenth of what it sends to the next.
fn lose_one_way(many_nodes: &mut ManyNodes) {
    let lossy = |link: netsim::LinkConfig| link.with_loss(Loss::Bernoulli(Chance::percent(10)));
    for pair in many_nodes.nodes.windows(2).skip(2).step_by(4) {
        let link = many_nodes.world.link(pair[0], pair[1]);
        many_nodes.world.set_link(pair[0], pair[1], lossy(link));
    }
}

/// Disconnects four pairs for a second each, one after the other, and repeats that every 6 s.
fn flap(many_nodes: &mut ManyNodes, rounds: usize) {
    for _ in 0..rounds {
        for pair in [[4, 20], [5, 21], [6, 22], [7, 23]] {
            let [one, other] = pair.map(|index| many_nodes.nodes[index].into());
            many_nodes.world.partition(&[one], &[other]);
            many_nodes.run_checked(1);
            many_nodes.world.heal(&[one], &[other]);
        }
        many_nodes.run_checked(2);
    }
}

/// Makes a node delay what it forwards.
fn hold_up(many_nodes: &mut ManyNodes, byzantine: usize) {
    for &to in &many_nodes.nodes.clone() {
        many_nodes.world.intercept(
            many_nodes.nodes[byzantine],
            to,
            |_, datagram| match datagram.bytes.first() {
                Some(0x80..=0x82) => Verdict::Delay(ms(100)),
                _ => Verdict::Pass,
            },
        );
    }
}
