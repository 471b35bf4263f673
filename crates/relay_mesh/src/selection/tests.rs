use super::*;
use wire::Seed;

const SLOTS: LinkSlots = LinkSlots {
    full_mesh_max: 12,
    required: 4,
    remote_ends: 3,
    low_latency: 4,
    random: 2,
    soft_max: 14,
    max: 16,
};

/// Free relays without measurements, with random keys drawn from a seed.
fn strangers(seed: u64, count: u16) -> Vec<Candidate> {
    let mut generator = Seed::from_number(seed).generator(0);
    let outsider = |link| Candidate {
        link: LinkId(link),
        state: DialState::Available,
        measured: None,
        estimate: Cost::UNROUTABLE,
        via_cost: Cost::UNROUTABLE,
        may_relay: true,
        random_key: generator.next_u64(),
    };
    (0..count).map(outsider).collect()
}

/// The same, all measured: a higher number means a longer delay.
fn measured(count: u16) -> Vec<Candidate> {
    let mut all = strangers(1, count);
    for (of, millis) in all.iter_mut().zip(10..) {
        of.measured = Some(Cost::from_millis(millis));
        of.state = DialState::Linked;
    }
    all
}

fn links(chosen: &BTreeMap<LinkId, LinkReason>, why: LinkReason) -> Vec<u16> {
    let of = chosen.iter().filter(|(_, of)| **of == why);
    of.map(|(link, _)| link.0).collect()
}

#[test]
fn places_of_the_default_are_48_for_all_and_16_16_8_and_16_for_guests() {
    let slots = LinkSlots::new(64);
    assert_eq!(
        slots,
        LinkSlots {
            full_mesh_max: 48,
            required: 16,
            remote_ends: 12,
            low_latency: 16,
            random: 8,
            soft_max: 56,
            max: 64,
        }
    );
    assert_eq!(
        slots.soft_max - slots.required - slots.low_latency - slots.random,
        16
    );
    assert_eq!(LinkSlots::new(16).soft_max, 14);
    // Needed inbound peers beyond their 16 slots take those for low latency.
    let near = [0, 16, 17, 32, 99].map(|peers| slots.with_needed_inbound(peers).low_latency);
    assert_eq!(near, [16, 16, 15, 0, 0]);
    assert_eq!(slots.needed_inbound(), 32);
    assert_eq!(slots.full_mesh_resume(), 42);
    // Beyond the size of a record, all slots are for peers.
    let wide = LinkSlots::new(1_000);
    assert_eq!(
        (wide.full_mesh_max, wide.low_latency, wide.max),
        (48, 16, 1_000)
    );
    let narrow = LinkSlots::new(1);
    assert_eq!(
        (narrow.full_mesh_max, narrow.low_latency, narrow.random),
        (1, 1, 1)
    );
}

#[test]
fn few_of_many_are_chosen() {
    let none = BTreeMap::new();
    for count in [13, 100, 1_000] {
        let many = strangers(1, count);
        let needed: Vec<LinkId> = (0..9).map(LinkId).collect();
        let chosen = select(&SLOTS, &many, &needed, &none);
        assert_eq!(chosen.len(), 10, "{count}");
        assert_eq!(links(&chosen, LinkReason::Required), [0, 1, 2, 3]);
        assert_eq!(links(&chosen, LinkReason::Random).len(), 2);
    }
}

#[test]
fn the_nearest_relays_are_chosen_whatever_else_is_known() {
    let none = BTreeMap::new();
    let mut all = measured(40);
    all[0].may_relay = false;
    all[1].measured = Some(Cost::UNROUTABLE);
    all[2].state = DialState::BackedOff;
    for of in &mut all {
        of.random_key |= 1 << 63;
    }
    // These two win the lottery.
    (all[38].random_key, all[39].random_key) = (0, 1);
    let chosen = select(&SLOTS, &all, &[], &none);
    assert_eq!(links(&chosen, LinkReason::LowLatency), [3, 4, 5, 6]);
    assert_eq!(links(&chosen, LinkReason::Random), [38, 39]);
    // Measured nodes precede unmeasured ones, however low the estimate is.
    all[3].measured = None;
    all[3].estimate = Cost::from_millis(1);
    let chosen = select(&SLOTS, &all, &[], &none);
    assert_eq!(links(&chosen, LinkReason::LowLatency), [4, 5, 6, 7]);
}

#[test]
fn a_near_node_stays_until_another_is_nearer_by_a_tenth() {
    let all = measured(40);
    let chosen = select(&SLOTS, &all, &[], &BTreeMap::new());
    let near = links(&chosen, LinkReason::LowLatency);
    let (&last, lot) = (near.last().unwrap(), links(&chosen, LinkReason::Random));
    let other = (last + 1..40).find(|link| !lot.contains(link)).unwrap();
    let swapped = |millis: u16| {
        let mut all = all.clone();
        for of in &mut all[usize::from(last)..] {
            of.measured = Some(Cost::from_millis(1_000));
        }
        all[usize::from(last)].measured = Some(Cost::from_millis(100));
        all[usize::from(other)].measured = Some(Cost::from_millis(millis));
        let again = select(&SLOTS, &all, &[], &chosen);
        links(&again, LinkReason::LowLatency).contains(&other)
    };
    assert!(!swapped(95));
    assert!(swapped(85));
}

#[test]
fn needed_nodes_are_chosen_at_any_cost_unless_backed_off_or_unknown() {
    let mut all = measured(40);
    all[20].state = DialState::BackedOff;
    all[21].measured = Some(Cost::UNROUTABLE);
    let needed = [99, 20, 21, 22, 23].map(LinkId);
    let chosen = select(&SLOTS, &all, &needed, &BTreeMap::new());
    assert_eq!(links(&chosen, LinkReason::Required), [21, 22, 23]);
}

/// Each of 1,000 nodes draws 8 others: all are reachable from one, in few hops.
#[test]
fn randomly_drawn_links_make_one_network_of_small_diameter() {
    for (count, steps_max) in [(60, 4), (1_000, 5)] {
        let mut joined = vec![Vec::new(); count];
        let slots = LinkSlots {
            random: 8,
            low_latency: 0,
            ..SLOTS
        };
        for node in 0..count {
            let seed = u64::try_from(node).unwrap();
            let others = strangers(seed, u16::try_from(count).unwrap());
            for link in select(&slots, &others, &[], &BTreeMap::new()).into_keys() {
                let other = usize::from(link.0);
                joined[node].push(other);
                joined[other].push(node);
            }
        }
        let mut steps = vec![usize::MAX; count];
        let (mut front, mut step) = (vec![0], 0);
        while !front.is_empty() {
            for &node in &front {
                steps[node] = step;
            }
            step += 1;
            let next = front.iter().flat_map(|node: &usize| &joined[*node]);
            let mut next: Vec<usize> = next.copied().filter(|of| steps[*of] > step).collect();
            next.sort_unstable();
            next.dedup();
            front = next;
        }
        let most = steps.into_iter().max().unwrap();
        assert!(most <= steps_max, "{count} nodes: {most} steps");
    }
}

#[test]
fn trials_prefer_unknown_and_low_estimates() {
    let mut generator = Seed::from_number(1).generator(0);
    let mut all = strangers(1, 40);
    let chosen = BTreeMap::from([(LinkId(0), LinkReason::LowLatency)]);
    for (of, millis) in all.iter_mut().zip(10..) {
        of.estimate = Cost::from_millis(millis);
    }
    all[1].measured = Some(Cost::from_millis(1));
    all[2].state = DialState::BackedOff;
    all[3].state = DialState::Linked;
    all[4].may_relay = false;
    all[9].via_cost = Cost::from_millis(1);
    let mut tried = BTreeMap::<u16, u32>::new();
    for _ in 0..400 {
        let one = try_one(&all, &chosen, &mut generator).unwrap();
        *tried.entry(one.0).or_default() += 1;
    }
    assert!([0, 1, 2, 3].iter().all(|link| !tried.contains_key(link)));
    assert!((160..240).contains(&tried[&5]), "{}", tried[&5]);
    assert!((70..130).contains(&tried[&9]), "{}", tried[&9]);
    assert!(tried.len() > 20, "and sometimes any");
    for of in &mut all {
        of.state = DialState::BackedOff;
    }
    assert_eq!(try_one(&all, &chosen, &mut generator), None);
}

#[test]
fn the_newest_inbound_peer_that_is_not_needed_is_evicted_first() {
    let peer = |link, since: u64, is_needed| InboundPeer {
        link: LinkId(link),
        since,
        is_needed,
    };
    let all = [peer(1, 5, false), peer(2, 9, true), peer(3, 7, false)];
    assert_eq!(eviction_order(all.into_iter()), [3, 1, 2].map(LinkId));
}
