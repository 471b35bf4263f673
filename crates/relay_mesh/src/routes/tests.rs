use super::*;
use proptest::prelude::*;
use wire::{Generator, Seed};

fn id(number: usize) -> NodeId {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&(number as u64).to_be_bytes());
    NodeId(id)
}

/// All simple paths over at most `relays_max` relays, best first.
fn all_ways(graph: &Graph, from: usize, to: usize, limits: RouteLimits) -> Vec<Route> {
    fn extend(
        graph: &Graph,
        way: &[usize],
        to: usize,
        limits: RouteLimits,
        found: &mut Vec<(u64, Vec<usize>)>,
    ) {
        let cost = |way: &[usize]| -> Option<u64> {
            way.windows(2).try_fold(0, |sum, link| {
                let cost = graph.link(NodeIndex(link[0]), NodeIndex(link[1]));
                cost.is_routable().then(|| sum + u64::from(cost.units()))
            })
        };
        let whole = [way, &[to]].concat();
        if let Some(links) = cost(&whole) {
            let relays = way.len() as u64 - 1;
            let total = links + relays * u64::from(limits.relay_cost.units());
            if total < 32_767 {
                found.push((total, way[1..].to_vec()));
            }
        }
        if way.len() <= limits.relays_max {
            for next in 0..graph.len() {
                if next != to && !way.contains(&next) && graph.relays[next] {
                    extend(graph, &[way, &[next]].concat(), to, limits, found);
                }
            }
        }
    }
    let mut found = Vec::new();
    extend(graph, &[from], to, limits, &mut found);
    found.sort_by_key(|(cost, relays)| {
        let backwards: Vec<usize> = relays.iter().rev().copied().collect();
        (*cost, relays.len(), backwards)
    });
    found
        .into_iter()
        .map(|(cost, relays)| Route {
            cost: Cost::from_units(u16::try_from(cost).unwrap()),
            path: Path {
                relays: relays.into_iter().map(|relay| graph.nodes[relay]).collect(),
                destination: graph.nodes[to],
            },
        })
        .collect()
}

fn dense(generator: &mut Generator, len: usize, cost_max: u64) -> Graph {
    let mut graph = Graph::new((0..len).map(|number| (id(number), !generator.chance(200_000))));
    for a in 0..len {
        for b in 0..a {
            let cost = Cost::from_units(u16::try_from(generator.between(1, cost_max)).unwrap());
            let cost = if generator.chance(100_000) {
                Cost::UNROUTABLE
            } else {
                cost
            };
            graph.set_link(NodeIndex(a), NodeIndex(b), cost);
        }
    }
    graph
}

proptest! {
    #[test]
    fn mesh_r4_routes_equal_the_exact_optimum_ties_included(
        seed: u64,
        len in 2_usize..8,
        relays_max in 0_usize..=3,
        // Few values cause many ties; large ones saturate.
        cost_max in prop_oneof![Just(3), Just(2_000), Just(32_766)],
    ) {
        let mut generator = Seed::from_number(seed).generator(0);
        let graph = dense(&mut generator, len, cost_max);
        let relay_cost = Cost::from_units(u16::try_from(generator.below(12)).unwrap());
        let limits = RouteLimits { relays_max, relay_cost };
        let routes = SourceRoutes::compute(&graph, NodeIndex(0), limits);
        for to in 1..len {
            let ways = all_ways(&graph, 0, to, limits);
            for way in &ways {
                let cost = graph.path_cost(NodeIndex(0), &way.path, relay_cost);
                prop_assert_eq!(cost, way.cost);
            }
            let exact = ways.into_iter().next();
            prop_assert_eq!(routes.route(&graph, NodeIndex(to)), exact);
        }
        prop_assert_eq!(routes.route(&graph, NodeIndex(0)), None);
        prop_assert!(routes.rows() <= len * relays_max);
    }

    #[test]
    fn alternatives_share_nothing_and_are_each_the_best_left(seed: u64, len in 2_usize..8) {
        let mut generator = Seed::from_number(seed).generator(0);
        let graph = dense(&mut generator, len, 2_000);
        let limits = RouteLimits::default();
        let best = SourceRoutes::compute(&graph, NodeIndex(0), limits);
        let routes = disjoint_routes(&graph, &best, NodeIndex(len - 1), 3);
        let mut left = all_ways(&graph, 0, len - 1, limits);
        for route in &routes {
            prop_assert_eq!(Some(route), left.first());
            left.retain(|other| {
                other.path != route.path
                    && other.path.relays.iter().all(|relay| !route.path.relays.contains(relay))
            });
        }
        prop_assert!(routes.len() == 3 || left.is_empty());
    }

    #[test]
    fn mesh_r3_repaired_routes_equal_recomputed_ones(
        seed: u64,
        len in 2_usize..24,
        relays_max in 0_usize..=3,
        cost_max in prop_oneof![Just(3), Just(300), Just(32_766)],
    ) {
        let mut generator = Seed::from_number(seed).generator(0);
        let mut graph = dense(&mut generator, len, cost_max);
        let limits = RouteLimits { relays_max, ..RouteLimits::default() };
        let mut routes = SourceRoutes::compute(&graph, NodeIndex(0), limits);
        for _ in 0..20 {
            let [a, b] = [0, 1].map(|_| {
                NodeIndex(usize::try_from(generator.below(len as u64)).unwrap())
            });
            let cost = Cost::from_units(u16::try_from(generator.between(1, cost_max + 1)).unwrap());
            graph.set_link(a, b, if generator.chance(200_000) { Cost::UNROUTABLE } else { cost });
            routes.relink(&graph, (a, b));
            let anew = SourceRoutes::compute(&graph, NodeIndex(0), limits);
            prop_assert!(routes.is_same(&anew), "{a:?} {b:?}");
        }
    }

    #[test]
    fn mesh_r2_all_pairs_are_those_of_every_source(
        seed: u64,
        len in 1_usize..140,
        cost_max in prop_oneof![Just(3), Just(2_000), Just(32_766)],
    ) {
        let mut generator = Seed::from_number(seed).generator(0);
        let graph = dense(&mut generator, len, cost_max);
        let limits = RouteLimits { relays_max: 1, ..RouteLimits::default() };
        let pairs = AllPairs::compute(&graph, limits.relay_cost);
        for from in (0..len).map(NodeIndex) {
            let routes = SourceRoutes::compute(&graph, from, limits);
            for to in (0..len).map(NodeIndex) {
                prop_assert_eq!(pairs.cost(from, to), routes.cost(to));
                let relay = pairs.relay(&graph, from, to).and_then(|relay| graph.node(relay));
                let path = routes.route(&graph, to).map(|route| route.path.relays);
                prop_assert_eq!(relay, path.and_then(|relays| relays.first().copied()));
            }
        }
    }
}

/// Unlike the proptest's, this graph is large enough that changes are updated incrementally.
#[test]
#[expect(clippy::print_stdout, reason = "a goal's figure is shown")]
fn mesh_r3_a_changed_link_costs_a_fraction_of_the_rows() {
    let mut generator = Seed::from_number(6).generator(0);
    let mut graph = map(&mut generator, 300);
    let limits = RouteLimits::default();
    let mut routes = SourceRoutes::compute(&graph, NodeIndex(0), limits);
    let (all, mut most, mut sum) = (routes.rows(), 0, 0);
    for round in 0..300_u64 {
        // Every third change affects a link of the source.
        let a = if round % 3 == 0 {
            0
        } else {
            generator.below(300)
        };
        let [a, b] =
            [a, generator.below(300)].map(|node| NodeIndex(usize::try_from(node).unwrap()));
        let cost = graph.link(a, b).units();
        let cost = if generator.chance(500_000) {
            cost / 2
        } else {
            cost.saturating_mul(2)
        };
        graph.set_link(a, b, Cost::from_units(cost));
        let before = routes.rows();
        routes.relink(&graph, (a, b));
        most = most.max(routes.rows() - before);
        sum += routes.rows() - before;
        let anew = SourceRoutes::compute(&graph, NodeIndex(0), limits);
        assert!(routes.is_same(&anew), "{a:?} {b:?}");
    }
    println!(
        "mesh_r3: {all} rows for all, {} for a change in the mean, at most {most}",
        sum / 300
    );
    assert!(sum / 300 < all / 10);
    assert!(most <= 3 * all, "{most} of {all}");
}

/// Nodes on a plane 150 ms across. Links are inflated as on the Internet: most by up to 1.6, one in
/// ten by up to 4.
fn map(generator: &mut Generator, len: usize) -> Graph {
    let places: Vec<[u64; 2]> = (0..len)
        .map(|_| [0, 1].map(|_| generator.below(1_500)))
        .collect();
    let mut graph = dense(generator, len, 1);
    for a in 0..len {
        for b in 0..a {
            let [dx, dy] = [0, 1].map(|axis: usize| places[a][axis].abs_diff(places[b][axis]));
            let worst = if generator.chance(100_000) { 400 } else { 160 };
            let percent = generator.between(100, worst);
            let cost = (dx * dx + dy * dy).isqrt() * percent / 100 + 10;
            let cost = Cost::from_units(u16::try_from(cost).unwrap());
            graph.set_link(NodeIndex(a), NodeIndex(b), cost);
        }
    }
    graph
}

/// 1,000 dense graphs, compared with Floyd-Warshall, which allows any number of relays.
#[test]
#[expect(clippy::print_stdout, reason = "a goal's figures are shown")]
fn mesh_r4_three_relays_are_within_a_thousandth_of_unbounded() {
    let mut generator = Seed::from_number(4).generator(0);
    let (mut bounded, mut unbounded) = (0_u64, 0_u64);
    for _ in 0..1_000 {
        let len = 24;
        let graph = map(&mut generator, len);
        let routes = SourceRoutes::compute(&graph, NodeIndex(0), RouteLimits::default());
        let mut best: Vec<Vec<u64>> = (0..len)
            .map(|a| {
                let row = graph.row(NodeIndex(a));
                row.iter().map(|&lane| lane.unsigned_abs().into()).collect()
            })
            .collect();
        for relay in (0..len).filter(|&relay| graph.relays[relay]) {
            for a in 0..len {
                for b in 0..len {
                    best[a][b] = best[a][b].min(best[a][relay] + 10 + best[relay][b]);
                }
            }
        }
        for (to, &exact) in best[0].iter().enumerate().skip(1) {
            bounded += u64::from(routes.cost(NodeIndex(to)).units());
            unbounded += exact.min(32_767);
        }
    }
    println!("mesh_r4: 3 relays cost {bounded}, any number {unbounded}");
    let over = (bounded - unbounded) * 1_000_000 / unbounded;
    let (percent, rest) = (over / 10_000, over % 10_000);
    println!("figure: routes over_unbounded_percent {percent}.{rest:04}");
    assert!(
        bounded * 1_000 <= unbounded * 1_001,
        "{bounded} {unbounded}"
    );
}

#[test]
#[expect(clippy::print_stdout, reason = "a goal's figure is shown")]
fn mesh_r1_one_source_adds_at_most_three_rows_for_each_node() {
    let mut generator = Seed::from_number(5).generator(0);
    let graph = dense(&mut generator, Graph::NODES_MAX, 3_000);
    let routes = SourceRoutes::compute(&graph, NodeIndex(0), RouteLimits::default());
    println!("mesh_r1: {} rows for {} nodes", routes.rows(), graph.len());
    assert!(routes.rows() <= 3 * graph.len());
    assert!((1..graph.len()).all(|to| routes.route(&graph, NodeIndex(to)).is_some()));
}

#[test]
fn pg7_no_path_is_distinguished_from_an_expensive_one() {
    let mut graph = Graph::new((0..4).map(|number| (id(number), true)));
    let [a, b, c, d] = [0, 1, 2, 3].map(NodeIndex);
    let dearest = Cost::from_units(32_766);
    graph.set_link(a, b, dearest);
    graph.set_link(b, c, Cost::from_units(1));
    let routes = SourceRoutes::compute(&graph, a, RouteLimits::default());
    assert_eq!(routes.route(&graph, b).unwrap().cost, dearest);
    for unreachable in [c, d] {
        assert_eq!(routes.route(&graph, unreachable), None);
        assert!(!routes.cost(unreachable).is_routable());
        assert_eq!(disjoint_routes(&graph, &routes, unreachable, 3), []);
    }
    assert_eq!(routes.route(&graph, a), None, "nor one to itself");
}

#[test]
fn only_relays_are_passed() {
    let mut graph = Graph::new((0..3).map(|number| (id(number), true)));
    let [a, b, c] = [0, 1, 2].map(NodeIndex);
    graph.set_link(a, b, Cost::from_millis(10));
    graph.set_link(b, c, Cost::from_millis(10));
    graph.set_link(a, c, Cost::from_millis(30));
    let route = |graph: &Graph| {
        SourceRoutes::compute(graph, a, RouteLimits::default())
            .route(graph, c)
            .unwrap()
    };
    assert_eq!(route(&graph).path.relays, [id(1)]);
    assert_eq!(route(&graph).cost, Cost::from_millis(21));
    let over_b = route(&graph).path;
    let relay_cost = Cost::from_millis(1);
    assert_eq!(
        graph.path_cost(a, &over_b, relay_cost),
        Cost::from_millis(21)
    );
    graph.forbid_relay(b);
    assert_eq!(graph.path_cost(a, &over_b, relay_cost), Cost::UNROUTABLE);
    assert_eq!(route(&graph).path.relays, []);
    graph.forbid_relay(a);
    graph.forbid_relay(c);
    assert_eq!(route(&graph).path.next_hop(), id(2), "ends need not relay");
}

#[test]
fn a_graph_takes_no_more_than_its_bound() {
    let graph = Graph::new((0..2_000).map(|number| (id(number), true)));
    assert_eq!(graph.len(), Graph::NODES_MAX);
    let twice = Graph::new([(id(1), true), (id(1), false)]);
    assert_eq!((twice.len(), twice.relays), (1, vec![false]));
}
