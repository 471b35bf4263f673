//! How soon a node of a large mesh learns that links are gone.

use std::collections::BTreeMap;

use netsim::{for_each_seed, test_site};

use super::many_nodes::{ENTRY, ManyNodes};

/// Links that the entry considers up, although one end is dead or has no session for them.
fn false_links(many_nodes: &ManyNodes) -> (Vec<(usize, usize)>, usize) {
    let (sessions, view) = (many_nodes.links(), many_nodes.node(ENTRY).mesh());
    let all = view.links.len();
    let ends = view.links.into_iter().map(|link| {
        let index = |node| {
            many_nodes
                .ids
                .iter()
                .position(|id| *id == node)
                .expect("born")
        };
        (index(link.low), index(link.high))
    });
    let has = |from: &usize, to: &usize| sessions.get(from).is_some_and(|of| of.contains(to));
    let gone = ends.filter(|(low, high)| !has(low, high) || !has(high, low));
    (gone.collect(), all)
}

#[test]
#[expect(clippy::print_stdout, reason = "figures are shown")]
fn sim_pgx13_a_death_is_known_in_5_s_and_a_closed_link_in_35_s() {
    for_each_seed(&test_site!(), 1, |seed| {
        let mut many_nodes = ManyNodes::new(seed, 60, |_| 24);
        let mut since: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        let (mut gone, mut all, mut longest) = (0, 0, 0);
        for second in 0..120 {
            many_nodes.run_checked(1);
            let (now, links) = false_links(&many_nodes);
            since.retain(|link, _| now.contains(link));
            for link in now {
                longest = longest.max(second - *since.entry(link).or_insert(second));
                gone += 1;
            }
            all += links;
        }
        let parted: u64 = (0..60)
            .map(|of| many_nodes.node(of).stats().links_parted)
            .sum();
        assert!(parted > 60, "{parted}");
        println!(
            "of 1,000 links known {} are gone, none for more than {longest} s",
            gone * 1_000 / all
        );
        assert!(longest < 35, "{longest}");

        let dead = many_nodes.draw().expect("a relay");
        assert!(!many_nodes.node(ENTRY).mesh().links.is_empty());
        many_nodes.kill(dead);
        many_nodes.run_checked(5);
        let (left, _) = false_links(&many_nodes);
        let of_dead = left
            .iter()
            .filter(|(low, high)| [low, high].contains(&&dead));
        assert_eq!(of_dead.count(), 0);
    });
}
