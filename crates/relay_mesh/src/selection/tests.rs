use super::*;
use wire::Seed;

const PLACES: Places = Places {
    all: 12,
    needed: 4,
    far_ends: 3,
    near: 4,
    lot: 2,
    calm: 14,
    max: 16,
};

/// Free relays of which nothing is known, with numbers in the lottery as drawn by a seed.
fn strangers(seed: u64, count: u16) -> Vec<Candidate> {
    let mut generator = Seed::from_number(seed).generator(0);
    let stranger = |link| Candidate {
        link: LinkId(link),
        standing: Standing::Free,
        measured: None,
        estimate: Cost::UNROUTABLE,
        way: Cost::UNROUTABLE,
        may_relay: true,
        draw: generator.next_u64(),
    };
    (0..count).map(stranger).collect()
}

/// The same, all of them measured: the higher its number the farther a node is.
fn measured(count: u16) -> Vec<Candidate> {
    let mut all = strangers(1, count);
    for (of, millis) in all.iter_mut().zip(10..) {
        of.measured = Some(Cost::from_millis(millis));
        of.standing = Standing::Linked;
    }
    all
}

fn links(chosen: &BTreeMap<LinkId, Why>, why: Why) -> Vec<u16> {
    let of = chosen.iter().filter(|(_, of)| **of == why);
    of.map(|(link, _)| link.0).collect()
}

#[test]
fn places_of_the_default_are_48_for_all_and_16_16_8_and_16_for_guests() {
    let places = Places::new(64);
    assert_eq!(
        places,
        Places {
            all: 48,
            needed: 16,
            far_ends: 12,
            near: 16,
            lot: 8,
            calm: 56,
            max: 64,
        }
    );
    assert_eq!(places.calm - places.needed - places.near - places.lot, 16);
    assert_eq!(Places::new(16).calm, 14);
    // Guests with a cause beyond their 16 places have those of the nearest.
    let near = [0, 16, 17, 32, 99].map(|guests| places.with_guests(guests).near);
    assert_eq!(near, [16, 16, 15, 0, 0]);
    assert_eq!(places.with_cause(), 32);
    assert_eq!(places.few_again(), 42);
    // Beyond what a record names, all places are for guests.
    let wide = Places::new(1_000);
    assert_eq!((wide.all, wide.near, wide.max), (48, 16, 1_000));
    let narrow = Places::new(1);
    assert_eq!((narrow.all, narrow.near, narrow.lot), (1, 1, 1));
}

#[test]
fn few_of_many_are_chosen() {
    let none = BTreeMap::new();
    for count in [13, 100, 1_000] {
        let many = strangers(1, count);
        let needed: Vec<LinkId> = (0..9).map(LinkId).collect();
        let chosen = select(&PLACES, &many, &needed, &none);
        assert_eq!(chosen.len(), 10, "{count}");
        assert_eq!(links(&chosen, Why::Needed), [0, 1, 2, 3]);
        assert_eq!(links(&chosen, Why::Lot).len(), 2);
    }
}

#[test]
fn the_nearest_relays_are_chosen_whatever_else_is_known() {
    let none = BTreeMap::new();
    let mut all = measured(40);
    all[0].may_relay = false;
    all[1].measured = Some(Cost::UNROUTABLE);
    all[2].standing = Standing::Refused;
    for of in &mut all {
        of.draw |= 1 << 63;
    }
    // These are drawn.
    (all[38].draw, all[39].draw) = (0, 1);
    let chosen = select(&PLACES, &all, &[], &none);
    assert_eq!(links(&chosen, Why::Near), [3, 4, 5, 6]);
    assert_eq!(links(&chosen, Why::Lot), [38, 39]);
    // What was measured comes before what was not, however low its estimate.
    all[3].measured = None;
    all[3].estimate = Cost::from_millis(1);
    let chosen = select(&PLACES, &all, &[], &none);
    assert_eq!(links(&chosen, Why::Near), [4, 5, 6, 7]);
}

#[test]
fn who_is_near_stays_until_another_is_nearer_by_a_tenth() {
    let all = measured(40);
    let chosen = select(&PLACES, &all, &[], &BTreeMap::new());
    let near = links(&chosen, Why::Near);
    let (&last, lot) = (near.last().unwrap(), links(&chosen, Why::Lot));
    let other = (last + 1..40).find(|link| !lot.contains(link)).unwrap();
    let swapped = |millis: u16| {
        let mut all = all.clone();
        for of in &mut all[usize::from(last)..] {
            of.measured = Some(Cost::from_millis(1_000));
        }
        all[usize::from(last)].measured = Some(Cost::from_millis(100));
        all[usize::from(other)].measured = Some(Cost::from_millis(millis));
        let again = select(&PLACES, &all, &[], &chosen);
        links(&again, Why::Near).contains(&other)
    };
    assert!(!swapped(95));
    assert!(swapped(85));
}

#[test]
fn needed_nodes_are_chosen_whatever_their_line_but_for_those_who_refuse_or_are_unknown() {
    let mut all = measured(40);
    all[20].standing = Standing::Refused;
    all[21].measured = Some(Cost::UNROUTABLE);
    let needed = [99, 20, 21, 22, 23].map(LinkId);
    let chosen = select(&PLACES, &all, &needed, &BTreeMap::new());
    assert_eq!(links(&chosen, Why::Needed), [21, 22, 23]);
}

/// Each of 1,000 nodes draws 8 others: all are reached from one, in few steps.
#[test]
fn links_drawn_by_lot_alone_make_one_network_of_small_diameter() {
    for (count, steps_max) in [(60, 4), (1_000, 5)] {
        let mut joined = vec![Vec::new(); count];
        let places = Places {
            lot: 8,
            near: 0,
            ..PLACES
        };
        for node in 0..count {
            let seed = u64::try_from(node).unwrap();
            let others = strangers(seed, u16::try_from(count).unwrap());
            for link in select(&places, &others, &[], &BTreeMap::new()).into_keys() {
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
fn trials_go_to_whom_nothing_is_known_of_and_low_estimates_first() {
    let mut generator = Seed::from_number(1).generator(0);
    let mut all = strangers(1, 40);
    let chosen = BTreeMap::from([(LinkId(0), Why::Near)]);
    for (of, millis) in all.iter_mut().zip(10..) {
        of.estimate = Cost::from_millis(millis);
    }
    all[1].measured = Some(Cost::from_millis(1));
    all[2].standing = Standing::Refused;
    all[3].standing = Standing::Linked;
    all[4].may_relay = false;
    all[9].way = Cost::from_millis(1);
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
        of.standing = Standing::Refused;
    }
    assert_eq!(try_one(&all, &chosen, &mut generator), None);
}

#[test]
fn of_guests_the_newest_without_a_cause_goes_first() {
    let guest = |link, since: u64, has_cause| Guest {
        link: LinkId(link),
        since,
        has_cause,
    };
    let all = [guest(1, 5, false), guest(2, 9, true), guest(3, 7, false)];
    assert_eq!(parting_order(all.into_iter()), [3, 1, 2].map(LinkId));
}
