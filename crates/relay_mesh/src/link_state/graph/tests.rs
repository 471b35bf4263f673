use super::*;
use crate::cost::LossCode;
use crate::link_state::{
    Admission, DeltaOutcome, Network, Outcome, Profile, Publisher, TableConfig,
};
use crate::routes::{RouteLimits, SourceRoutes};
use crypto::{Identity, Provider};
use netsim::provider::SimProvider;
use wire::{Instant, Seed};

const NETWORK: Network = Network([9; 16]);

/// Nodes that all know each other; node 0 owns the table.
struct World {
    provider: SimProvider,
    ids: Vec<NodeId>,
    publishers: Vec<Publisher<SimProvider>>,
    table: LinkStateTable,
}

impl World {
    fn new(count: usize, grant: impl Fn(usize) -> Roles) -> Self {
        let mut provider = SimProvider::new(Seed::from_number(1));
        let mut identities: Vec<Identity> = (0..count)
            .map(|_| Identity::generate(&mut provider).unwrap())
            .collect();
        identities.sort_by_key(Identity::node_id);
        let ids: Vec<NodeId> = identities.iter().map(Identity::node_id).collect();
        let publishers = identities.iter().map(|identity| {
            let key = provider.signing_key(identity).unwrap();
            let profile = Profile {
                roles: Roles::ALL,
                ..Profile::default()
            };
            Publisher::new(key, *identity.public_key(), NETWORK, profile).unwrap()
        });
        let publishers = publishers.collect();
        let mut config = TableConfig::default();
        let granted = ids
            .iter()
            .enumerate()
            .map(|(index, &id)| (id, grant(index)));
        config.admission = Admission::Listed(granted.collect());
        let table = LinkStateTable::new(config, NETWORK, ids[0]);
        Self {
            provider,
            ids,
            publishers,
            table,
        }
    }

    /// Node `from` publishes links of these costs in ms.
    fn publish(&mut self, now: Instant, from: usize, links: &[(usize, u16)]) {
        let links = links
            .iter()
            .map(|&(to, millis)| (self.ids[to], report(millis)));
        let publication = self.publishers[from]
            .update(now, None, &mut self.provider, &links.collect())
            .unwrap();
        let from = self.ids[from];
        if let Some(node) = publication.node {
            let outcome = self.table.accept_node(now, &self.provider, from, &node);
            assert_eq!(outcome, Outcome::Accepted);
        }
        let links = publication.links.unwrap();
        let outcome = self.table.accept_links(now, &self.provider, from, &links);
        assert_eq!(outcome, Outcome::Accepted);
    }

    /// Node `from` publishes a delta with a delay of 3.2 s and nearly total loss for its links.
    fn report_failure(&mut self, now: Instant, from: usize, links: &[usize]) {
        let slow = LinkReport {
            delay: Cost::from_millis(3_200),
            loss: LossCode(254),
        };
        let links = links.iter().map(|to| (self.ids[*to], slow));
        let publication = self.publishers[from]
            .update(now, None, &mut self.provider, &links.collect())
            .unwrap();
        assert_eq!(publication.links, None);
        let delta = publication.delta.unwrap();
        let outcome = self.table.accept_delta(now, self.ids[from], delta);
        assert_eq!(outcome, DeltaOutcome::Accepted);
    }

    /// Cost in ms from `a` to `b` if node 0 measures `own`.
    fn link(&self, a: usize, b: usize, own: &[(usize, u16)]) -> Option<u16> {
        let own = own
            .iter()
            .map(|&(to, millis)| (self.ids[to], report(millis)));
        let graph = self.table.graph(&CostModel::default(), &own.collect());
        let (a, b) = (graph.index(&self.ids[a])?, graph.index(&self.ids[b])?);
        let cost = graph.link(a, b);
        assert_eq!(cost, graph.link(b, a));
        cost.is_routable().then(|| cost.units() / 10)
    }
}

fn report(millis: u16) -> LinkReport {
    LinkReport {
        delay: Cost::from_millis(millis),
        loss: LossCode(0),
    }
}

#[test]
fn a_link_counts_where_both_ends_report_it_and_the_worse_report_holds() {
    let mut world = World::new(3, |_| Roles::ALL);
    world.publish(Instant::ZERO, 1, &[(2, 10)]);
    assert_eq!(world.link(1, 2, &[]), None, "one liar invents no link");
    world.publish(Instant::ZERO, 2, &[(1, 30)]);
    assert_eq!(world.link(1, 2, &[]), Some(30));
    world.publish(Instant::from_millis(2_000), 1, &[(2, 4_000)]);
    assert_eq!(world.link(1, 2, &[]), None, "one end takes it down");
}

#[test]
fn pgx6_no_reported_cost_removes_a_route_of_three_relays() {
    let mut world = World::new(6, |_| Roles::ALL);
    let near = |node: usize| [node - 1, node + 1].into_iter().filter(|to| *to < 6);
    for node in 1..6 {
        let links: Vec<_> = near(node).map(|to| (to, 10)).collect();
        world.publish(Instant::ZERO, node, &links);
    }
    for node in 1..6 {
        let links: Vec<_> = near(node).collect();
        world.report_failure(Instant::from_millis(2_000), node, &links);
    }
    let own = [(world.ids[1], report(10))].into_iter().collect();
    let graph = world.table.graph(&CostModel::default(), &own);
    let index = |node: usize| graph.index(&world.ids[node]).unwrap();
    let limits = RouteLimits {
        relay_cost: CostModel::default().relay(),
        ..RouteLimits::default()
    };
    let routes = SourceRoutes::compute(&graph, index(0), limits);
    let route = routes.route(&graph, index(4)).expect("over three relays");
    assert_eq!(route.path.relays, world.ids[1..4]);
    assert!(
        routes.route(&graph, index(5)).is_none(),
        "a fourth is one too many"
    );
}

#[test]
fn signed_and_own_measurements_count_in_full() {
    let mut world = World::new(3, |_| Roles::ALL);
    world.publish(Instant::ZERO, 1, &[(0, 1_600), (2, 2_000)]);
    world.publish(Instant::ZERO, 2, &[(1, 2_000)]);
    assert_eq!(world.link(1, 2, &[(1, 10)]), Some(2_000));
    assert_eq!(world.link(0, 1, &[(1, 10)]), Some(1_600));
    assert_eq!(world.link(0, 1, &[(1, 1_900)]), Some(1_900));
    // A delta above the cap still counts up to the record's delay.
    world.report_failure(Instant::from_millis(2_000), 2, &[1]);
    let cost = CostModel::default().loss(LossCode(180)).units() / 10;
    assert_eq!(world.link(1, 2, &[]), Some(2_000 + cost));
}

#[test]
fn own_links_use_current_measurements_unless_the_peer_reports_worse() {
    let mut world = World::new(3, |_| Roles::ALL);
    assert_eq!(world.link(0, 1, &[(1, 20)]), Some(20), "not yet heard of");
    world.publish(Instant::ZERO, 1, &[(0, 35), (2, 5)]);
    assert_eq!(world.link(0, 1, &[(1, 20)]), Some(35));
    assert_eq!(world.link(0, 1, &[(1, 50)]), Some(50));
    assert_eq!(world.link(0, 1, &[]), None, "we have no link to it");
    world.publish(Instant::ZERO, 2, &[(0, 1)]);
    assert_eq!(world.link(0, 2, &[]), None, "we do not measure it");
}

#[test]
fn mesh_g3_links_of_a_dead_node_go_with_its_record() {
    let mut world = World::new(3, |_| Roles::ALL);
    world.publish(Instant::ZERO, 1, &[(2, 10)]);
    world.publish(Instant::from_millis(60_000), 2, &[(1, 10)]);
    world.table.expire(Instant::from_millis(89_999));
    assert_eq!(world.link(1, 2, &[]), Some(10));
    world.table.expire(Instant::from_millis(90_000));
    assert_eq!(world.link(1, 2, &[]), None);
}

#[test]
fn only_a_claimed_and_granted_role_is_accepted() {
    let grant = |index| if index == 2 { Roles::EXIT } else { Roles::ALL };
    let mut world = World::new(4, grant);
    for node in [1, 2, 3] {
        if node == 3 {
            world.publishers[3].leave();
        }
        world.publish(Instant::ZERO, node, &[(0, 10)]);
    }
    let own = [1, 2, 3].map(|node| (world.ids[node], report(10)));
    let graph = world.table.graph(&CostModel::default(), &own.into());
    let expected: Vec<bool> = [false, true, false, false].into();
    let passed: Vec<bool> = world
        .ids
        .iter()
        .map(|id| graph.may_relay(graph.index(id).unwrap()))
        .collect();
    assert_eq!(passed, expected);
    let (profile, roles) = world.table.profile(&world.ids[2]).unwrap();
    assert_eq!((profile.roles, roles), (Roles::ALL, Roles::EXIT));
}
