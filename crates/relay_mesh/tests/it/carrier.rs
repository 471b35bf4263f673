//! Many players behind one address, such as a school or a carrier-grade NAT.

use core::net::SocketAddr;
use std::collections::BTreeSet;

use relay_mesh::{FlowEnd, TurnedAway, UnprovedLimits};
use wire::Seed;

use crate::harness::{ENTRY, EXIT, Mesh, START, Shape, game, link, ms, shape};
use crate::player::Player;

/// Starts `count` players of one address within a second. Returns how many are served, and the
/// share of the datagrams sent in the last 3 s that was answered, in percent.
fn served(shape: &Shape, count: u16) -> (usize, u64, Mesh) {
    let mut mesh = Mesh::new(Seed::from_number(7), shape);
    mesh.run(START);
    let now = mesh.now();
    let players: Vec<_> = (0..count)
        .map(|number| {
            let source = SocketAddr::from(([203, 0, 113, 77], 10_000 + number));
            let begins = now + ms(u64::from(number) * 1_000 / u64::from(count));
            let player = mesh
                .world
                .add(source, |_| Player::new(game(), 5, 100, begins));
            let entry = mesh.nodes[ENTRY];
            mesh.world.set_links(player, entry, link(5));
            player
        })
        .collect();
    mesh.run(5_000);
    let before: u64 = players.iter().map(|of| mesh.world[*of].sent()).sum();
    let missing: u64 = players.iter().map(|of| mesh.world[*of].missing()).sum();
    mesh.run(3_000);
    let sent: u64 = players.iter().map(|of| mesh.world[*of].sent()).sum();
    let late: u64 = players.iter().map(|of| mesh.world[*of].missing()).sum();
    let are_served = players
        .iter()
        .filter(|of| !mesh.world[**of].answers.is_empty());
    let share = 100 - (late.saturating_sub(missing)) * 100 / (sent - before);
    (are_served.count(), share, mesh)
}

#[test]
fn sim_mesh_a3_a_thousand_players_of_one_address_are_served() {
    let (served, share, mesh) = served(&Shape::default(), 1_000);
    eprintln!(
        "1,000 players of one address: {served} served, {share} % of what they sent answered"
    );
    assert_eq!(served, 1_000);
    assert!(share >= 95, "{share} %");
    assert_eq!(mesh.turned_away(ENTRY), []);
}

#[test]
fn mesh_a3_a_games_limits_hold_and_rejected_flows_are_reported() {
    let shape = shape(|_, config, _| {
        let mut limits = UnprovedLimits::default();
        (limits.newcomers, limits.unproved, limits.bytes) = (2, 8, 1 << 20);
        config.unproved_limits = [("echo".into(), limits)].into();
    });
    let (served, _, mesh) = served(&shape, 100);
    assert!((16..60).contains(&served), "8 and 2 a second: {served}");
    let reported = mesh.turned_away(ENTRY);
    assert!(
        matches!(reported[..], [(TurnedAway::Ration, count)] if count > 50),
        "{reported:?}"
    );
    assert_eq!(mesh.turned_away(EXIT), [], "it had room for all");
}

/// New players evict others of their own network at the entry. The exit is notified of the ended
/// flows and has room.
#[test]
fn mesh_a3_an_exit_does_not_report_a_flow_rejected_by_the_entry() {
    let shape = shape(|_, config, _| {
        let mut limits = UnprovedLimits::default();
        (limits.newcomers, limits.unproved) = (1_000, 4);
        config.unproved_limits = [("echo".into(), limits)].into();
    });
    let (_, _, mesh) = served(&shape, 500);
    let reported = mesh.turned_away(ENTRY);
    assert!(
        matches!(reported[..], [(TurnedAway::Ration, count)] if count > 50),
        "{reported:?}"
    );
    let gave_way = mesh.process(EXIT).closed_flows();
    assert!(gave_way.contains(&FlowEnd::Evicted), "{gave_way:?}");
    assert_eq!(mesh.turned_away(EXIT), []);
}

/// An exit that does not serve the game for this entry.
#[test]
fn mesh_a3_a_flow_refused_by_the_exit_is_reported_at_the_entry() {
    let shape = shape(|index, config, _| {
        if index == EXIT {
            let exits = config
                .games
                .iter_mut()
                .filter_map(|game| game.exit.as_mut());
            exits.for_each(|exit| exit.entries = Some(BTreeSet::new()));
        }
    });
    let (served, _, mesh) = served(&shape, 20);
    assert_eq!(served, 0);
    let reported = mesh.turned_away(ENTRY);
    assert!(
        matches!(reported[..], [(TurnedAway::Refused, count)] if count > 0),
        "{reported:?}"
    );
}
