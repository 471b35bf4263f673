use super::*;

fn id(number: u8) -> NodeId {
    NodeId([number; 32])
}

fn up(since: u64) -> LinkAge {
    LinkAge {
        since: Instant::from_millis(since * 1_000),
        is_chosen: true,
        is_up: true,
    }
}

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1_000)
}

/// A list of ten, and their links.
fn ten() -> (AdvertisedLinks, BTreeMap<NodeId, LinkAge>) {
    let mut advertised = AdvertisedLinks::default();
    let links: BTreeMap<_, _> = (0..10).map(|number| (id(number), up(0))).collect();
    advertised.update(at(0), 100, &links);
    assert!(
        (0..10).all(|number| advertised.contains(&id(number))),
        "at once"
    );
    (advertised, links)
}

#[test]
fn a_trial_is_not_listed_and_what_lasts_is_after_30_s() {
    let (mut advertised, mut links) = ten();
    links.insert(id(20), up(100));
    for now in 100..130 {
        advertised.update(at(now), 100, &links);
        assert!(!advertised.contains(&id(20)), "{now}");
    }
    advertised.update(at(130), 100, &links);
    assert!(advertised.contains(&id(20)));
}

#[test]
fn changes_wait_for_each_other_and_longer_in_large_meshes() {
    let mut changes = [0, 0];
    for (changes, known) in changes.iter_mut().zip([100, 1_000]) {
        let (mut advertised, mut links) = ten();
        for now in 100..700 {
            // Each second one link begins, one turns 30 s old, and one ends.
            let newest = u8::try_from(now % 150).unwrap() + 20;
            links.insert(id(newest), up(now));
            links.retain(|node, link| {
                *node < id(10) || link.since + Duration::from_secs(50) > at(now)
            });
            let before = advertised.nodes.keys().copied().collect::<Vec<_>>();
            advertised.update(at(now), known, &links);
            *changes += u32::from(!advertised.nodes.keys().eq(&before));
        }
        assert!(advertised.nodes.len() <= NEIGHBOURS_MAX);
    }
    assert!((20..=30).contains(&changes[0]), "each 24 s: {changes:?}");
    assert!((3..=6).contains(&changes[1]), "{changes:?}");
}

#[test]
fn nodes_that_began_together_do_not_change_their_lists_together() {
    let mut lists: Vec<AdvertisedLinks> = (0..100)
        .map(|node| AdvertisedLinks::new(splitmix::mix(node)))
        .collect();
    let mut links: BTreeMap<_, _> = (0..10).map(|number| (id(number), up(0))).collect();
    let mut changed = Vec::new();
    for now in 0..2_400 {
        // Each second there is a change to advertise.
        let newest = u8::try_from(now % 150).unwrap() + 20;
        links.insert(id(newest), up(now));
        links.retain(|node, link| *node < id(10) || link.since + Duration::from_secs(50) > at(now));
        for advertised in &mut lists {
            let before = advertised.changed_at;
            advertised.update(at(now), 1_000, &links);
            changed.extend((advertised.changed_at != before).then_some(now));
        }
    }
    let count = |times: core::ops::Range<u64>| {
        let within = changed.iter().filter(|at| times.contains(at));
        within.count()
    };
    let early = count(1..240);
    assert!((250..=350).contains(&early), "three in 240 s: {early}");
    let later = count(600..2_400);
    assert!((700..800).contains(&later), "each 240 s: {later}");
    for begin in (600..2_400).step_by(10) {
        let count = count(begin..begin + 10);
        assert!(count <= 20, "{count} of 100 in 10 s from {begin}");
    }
}

#[test]
fn an_ended_node_is_down_for_a_minute_and_finds_its_slot_again() {
    let (mut advertised, links) = ten();
    let mut fewer = links.clone();
    fewer.remove(&id(3));
    for now in 100..155 {
        advertised.update(at(now), 100, &fewer);
        assert_eq!(
            advertised.reports(&BTreeMap::new())[&id(3)],
            LinkReport::DOWN
        );
    }
    advertised.update(at(155), 100, &links);
    for now in 156..216 {
        advertised.update(at(now), 100, &fewer);
        assert!(advertised.contains(&id(3)), "{now}");
    }
    advertised.update(at(216), 100, &fewer);
    assert!(!advertised.contains(&id(3)));
}

#[test]
fn a_split_is_reported_only_if_one_of_both_chose_it() {
    let (mut advertised, mut links) = ten();
    let reported = |advertised: &AdvertisedLinks| {
        [3, 4].map(|node| advertised.reports(&BTreeMap::new())[&id(node)])
    };
    let gone = [3, 4].map(|node| links.remove(&id(node)).unwrap());
    advertised.on_deselected(at(1), id(3));
    for now in 1..5 {
        advertised.update(at(now), 100, &links);
        // It is too late to be the reason.
        advertised.on_deselected(at(now), id(4));
        assert_eq!(
            reported(&advertised),
            [LinkReport::PARTED, LinkReport::DOWN]
        );
    }
    links.extend([id(3), id(4)].into_iter().zip(gone));
    advertised.update(at(5), 100, &links);
    links.remove(&id(3));
    advertised.update(at(6), 100, &links);
    assert_eq!(
        reported(&advertised)[0],
        LinkReport::DOWN,
        "this time nobody said so"
    );
}

#[test]
fn those_that_were_chosen_come_first_where_the_list_is_full() {
    let mut advertised = AdvertisedLinks::default();
    let mut links: BTreeMap<_, _> = (0..100).map(|number| (id(number), up(0))).collect();
    for (_, link) in links.iter_mut().take(60) {
        link.is_chosen = false;
    }
    advertised.update(at(0), 100, &links);
    assert_eq!(advertised.nodes.len(), NEIGHBOURS_MAX);
    assert!((60..100).all(|number| advertised.contains(&id(number))));
    // A neighbour chosen later replaces listed inbound ones; other inbound ones do not.
    let guests =
        |advertised: &AdvertisedLinks| (0..60).filter(|of| advertised.contains(&id(*of))).count();
    assert_eq!(guests(&advertised), 24);
    let before: Vec<NodeId> = advertised.nodes.keys().copied().collect();
    links.extend((100..110).map(|number| (id(number), up(50))));
    links.extend((110..120).map(|number| {
        (
            id(number),
            LinkAge {
                is_chosen: false,
                ..up(50)
            },
        )
    }));
    advertised.update(at(100), 120, &links);
    assert_eq!(
        (advertised.nodes.len(), guests(&advertised)),
        (NEIGHBOURS_MAX, 14)
    );
    assert!((60..110).all(|number| advertised.contains(&id(number))));
    assert!((0..60).all(|of| before.contains(&id(of)) || !advertised.contains(&id(of))));
}
