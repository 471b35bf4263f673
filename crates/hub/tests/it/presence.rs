//! Presence that is watched by a filter.

use std::collections::{BTreeMap, BTreeSet};

use hub::record::{DownReason, NodeFilter, PlayerFilter, PresenceFilter, ToHub, ToNode};
use hub::{HubConfig, MailSeq, Name, NodeConfig, NodeEvent, Role};
use wire::{ClientId, NodeId, StreamMachine};

use crate::bare::{Bare, LINK, NOW, OTHER, claim, down, three};
use crate::world::{World, body, node_id, seeds, server};

const WATCHER: usize = 2;

/// What the watcher has received.
#[derive(Debug, Default)]
struct View {
    nodes: BTreeSet<NodeId>,
    players: BTreeMap<ClientId, NodeId>,
    is_complete: bool,
}

impl View {
    fn absorb(&mut self, world: &mut World) {
        for (index, event) in world.take_events() {
            if index != WATCHER {
                continue;
            }
            match event {
                NodeEvent::PresenceReset => *self = Self::default(),
                NodeEvent::PresenceComplete => self.is_complete = true,
                NodeEvent::NodePresence(node, Some(_)) => {
                    self.nodes.insert(node);
                }
                NodeEvent::NodePresence(node, None) => {
                    self.nodes.remove(&node);
                }
                NodeEvent::PlayerPresence(player, Some((node, _))) => {
                    self.players.insert(player, node);
                }
                NodeEvent::PlayerPresence(player, None) => {
                    self.players.remove(&player);
                }
                _ => {}
            }
        }
    }

    fn players(&self) -> Vec<u64> {
        self.players.keys().map(|player| player.0).collect()
    }
}

fn watching(nodes: NodeFilter, players: PlayerFilter) -> NodeConfig {
    let mut config = NodeConfig::default();
    config.presence = Some(PresenceFilter { nodes, players });
    config
}

fn claim_all(world: &mut World, index: usize, players: impl IntoIterator<Item = u64>) {
    let now = world.now;
    for player in players {
        let node = world.node(index);
        node.claim(now, ClientId(player), MailSeq(0), body(""))
            .unwrap();
    }
    world.run_ms(200);
}

fn world(seed: u64, config: NodeConfig) -> (World, View) {
    let mut world = World::new(seed, 3);
    world.start_hub();
    world.start_node(0, NodeConfig::default());
    world.start_node(1, server("matchmaker"));
    world.run_ms(1_500);
    claim_all(&mut world, 0, [1, 5, 9]);
    world.start_node(WATCHER, config);
    world.run_ms(1_500);
    let mut view = View::default();
    view.absorb(&mut world);
    assert!(view.is_complete);
    (world, view)
}

#[test]
fn h5_players_are_watched_by_list_and_by_range() {
    let list = PlayerFilter::players(&[ClientId(9), ClientId(2), ClientId(2)]).unwrap();
    let (mut list_world, mut view) = world(1, watching(NodeFilter::None, list));
    assert_eq!((view.players(), view.nodes.len()), (vec![9], 0));
    claim_all(&mut list_world, 1, [1, 2, 3]);
    view.absorb(&mut list_world);
    assert_eq!(view.players(), [2, 9]);
    list_world.crash_node(0);
    list_world.run_ms(500);
    view.absorb(&mut list_world);
    assert_eq!(view.players(), [2]);

    let range = PlayerFilter::Range(ClientId(2), ClientId(6));
    let (mut world, mut view) = world(2, watching(NodeFilter::None, range));
    assert_eq!(view.players(), [5]);
    claim_all(&mut world, 1, [1, 2, 6, 7]);
    view.absorb(&mut world);
    assert_eq!(view.players(), [2, 5, 6]);
}

#[test]
fn h5_nodes_are_watched_by_role_and_by_service() {
    let role = NodeFilter::Matching {
        roles: vec![Role::Matchmaker],
        services: Vec::new(),
    };
    let service = NodeFilter::Matching {
        roles: Vec::new(),
        services: vec![Name::new("matchmaker").unwrap()],
    };
    for (seed, filter) in [(3, role), (4, service)] {
        let (mut world, mut view) = world(seed, watching(filter, PlayerFilter::None));
        assert_eq!(view.nodes, BTreeSet::from([node_id(1)]));
        world.crash_node(1);
        world.crash_node(0);
        world.run_ms(500);
        view.absorb(&mut world);
        assert!(view.nodes.is_empty(), "its end is reported, too");
        world.start_node(0, server("matchmaker"));
        world.start_node(1, NodeConfig::default());
        world.run_ms(1_500);
        view.absorb(&mut world);
        assert_eq!(
            view.nodes,
            BTreeSet::from([node_id(0)]),
            "with its new role"
        );
    }
}

#[test]
fn h5_a_filter_can_be_replaced_and_survives_a_link() {
    let (mut world, mut view) = world(5, watching(NodeFilter::All, PlayerFilter::None));
    assert_eq!(view.nodes.len(), 3);
    let filter = PresenceFilter {
        nodes: NodeFilter::None,
        players: PlayerFilter::Range(ClientId(9), ClientId(9)),
    };
    let now = world.now;
    assert!(world.node(WATCHER).watch_presence(now, filter));
    for _ in 0..2 {
        world.run_ms(2_000);
        view.absorb(&mut world);
        assert_eq!((view.players(), view.nodes.len()), (vec![9], 0));
        world.crash_hub(crate::world::Power::Stays, std::time::Duration::ZERO);
    }
    let unsorted = PresenceFilter {
        nodes: NodeFilter::None,
        players: PlayerFilter::List(vec![ClientId(2), ClientId(1)]),
    };
    assert!(!world.node(WATCHER).watch_presence(now, unsorted));
    assert_eq!(
        PlayerFilter::players(&vec![ClientId(1); 5_000]),
        Some(PlayerFilter::List(vec![ClientId(1)]))
    );
}

#[test]
fn hub_6_a_filter_has_bounded_lists() {
    let many: Vec<_> = (0..=PlayerFilter::LIST_MAX as u64).map(ClientId).collect();
    assert_eq!(PlayerFilter::players(&many), None);
    for players in [many, vec![ClientId(2), ClientId(1)]] {
        let mut bare = three(HubConfig::default());
        let filter = PresenceFilter {
            nodes: NodeFilter::All,
            players: PlayerFilter::List(players),
        };
        bare.send(LINK, &ToHub::Watch(filter));
        let (records, closed) = bare.written(LINK);
        assert!(closed);
        assert_eq!(down(&records), Some(DownReason::Protocol));
    }
}

#[test]
fn hub_5_a_filtered_watcher_that_reads_nothing_costs_bounded_bytes() {
    let mut config = HubConfig::default();
    config.watch_changes_max = 10;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    bare.hub.handle_credit(NOW, OTHER, 1 << 30);
    let filter = PresenceFilter {
        nodes: NodeFilter::None,
        players: PlayerFilter::Range(ClientId(0), ClientId(999)),
    };
    bare.send(LINK, &ToHub::Watch(filter));
    bare.written(LINK);
    for player in 0..2_000 {
        bare.send(OTHER, &claim(player));
        bare.written(OTHER);
    }
    bare.hub.handle_credit(NOW, LINK, 1 << 30);
    let (records, _) = bare.written(LINK);
    let is_player =
        |record: &&Vec<u8>| matches!(ToNode::decode(record), Ok(ToNode::PresencePlayer { .. }));
    assert_eq!(records.iter().filter(is_player).count(), 1_000);
}

#[test]
fn sim_h5_a_filtered_view_is_that_of_the_hub_under_any_failures() {
    for seed in seeds(20) {
        let range = PlayerFilter::Range(ClientId(3), ClientId(12));
        let (mut world, mut view) = world(seed, watching(NodeFilter::None, range));
        for _ in 0..30 {
            let player = ClientId(world.generator.below(16));
            let index = usize::try_from(world.generator.below(2)).unwrap();
            let now = world.now;
            if let Some(node) = &mut world.nodes[index] {
                node.claim(now, player, MailSeq(0), body("")).unwrap();
            }
            match world.generator.below(12) {
                0 => world.reset_some_stream(),
                1 => world.crash_node(index),
                2 => world.start_node(index, NodeConfig::default()),
                3 => world.crash_hub(
                    crate::world::Power::Stays,
                    std::time::Duration::from_millis(300),
                ),
                _ => {}
            }
            let pause = world.generator.below(400);
            world.run_ms(pause);
            view.absorb(&mut world);
        }
        // Longer than a lease.
        world.run_ms(15_000);
        view.absorb(&mut world);
        for player in (0..16).map(ClientId) {
            let holder = world.hub().machine.holder(player);
            let expected = holder.filter(|_| (3..=12).contains(&player.0));
            assert_eq!(view.players.get(&player).copied(), expected, "seed {seed}");
        }
    }
}
