use super::*;
use crate::cost::{Cost, LossCode};
use crypto::Identity;
use netsim::provider::SimProvider;
use wire::Seed;

struct World {
    provider: SimProvider,
    publisher: Publisher<SimProvider>,
    links: BTreeMap<NodeId, LinkReport>,
}

impl World {
    fn new() -> Self {
        let mut provider = SimProvider::new(Seed::from_number(1));
        let identity = Identity::generate(&mut provider).unwrap();
        let key = provider.signing_key(&identity).unwrap();
        let profile = Profile::default();
        let public = *identity.public_key();
        let publisher = Publisher::new(key, public, Network([1; 16]), profile).unwrap();
        let mut world = Self {
            provider,
            publisher,
            links: BTreeMap::new(),
        };
        world.measure(1, 50, 0);
        world
    }

    fn measure(&mut self, node: u8, millis: u16, loss: u8) {
        let report = LinkReport {
            delay: Cost::from_millis(millis),
            loss: LossCode(loss),
        };
        self.links.insert(NodeId([node; 32]), report);
    }

    fn publish(&mut self, millis: u64, unix: Option<u64>) -> Publication {
        let now = Instant::from_millis(millis);
        let unix = unix.map(UnixTime::from_millis);
        let publication = self
            .publisher
            .update(now, unix, &mut self.provider, &self.links)
            .unwrap();
        assert!(publication.links.is_none() || publication.delta.is_none());
        publication
    }

    /// Returns whether a node record, a link record and a delta were published.
    fn update(&mut self, millis: u64) -> (bool, bool, bool) {
        let publication = self.publish(millis, None);
        (
            publication.node.is_some(),
            publication.links.is_some(),
            publication.delta.is_some(),
        )
    }
}

const NOTHING: (bool, bool, bool) = (false, false, false);
const LINKS: (bool, bool, bool) = (false, true, false);
const BOTH: (bool, bool, bool) = (true, true, false);
const DELTA: (bool, bool, bool) = (false, false, true);

#[test]
fn announces_changes_no_more_often_than_allowed() {
    let mut world = World::new();
    assert_eq!(world.update(0), BOTH);
    assert_eq!(world.update(29_999), NOTHING);
    assert_eq!(world.update(30_000), LINKS, "each 30 s");
    world.measure(1, 52, 0);
    assert_eq!(world.update(32_000), NOTHING, "2 ms of 50 are noise");
    world.measure(1, 53, 0);
    assert_eq!(world.update(32_000), DELTA);
    world.measure(1, 80, 0);
    assert_eq!(world.update(32_999), NOTHING, "once a second");
    assert_eq!(world.update(33_000), DELTA);
    world.measure(1, 80, 6);
    assert_eq!(world.update(34_000), DELTA, "0.6 % of loss");
    world.links.insert(NodeId([1; 32]), LinkReport::DOWN);
    assert_eq!(world.update(34_001), LINKS, "down is signed, at once");
    world.measure(1, 80, 6);
    assert_eq!(world.update(34_200), NOTHING);
    assert_eq!(world.update(34_201), LINKS, "up is too, within 200 ms");
    world.measure(2, 9, 0);
    assert_eq!(world.update(34_400), BOTH, "a new neighbour");
    assert_eq!(world.update(64_400), LINKS);
    world.links.remove(&NodeId([2; 32]));
    assert_eq!(world.update(64_600), BOTH, "one less");
    for tick in 0..10 {
        world.update(64_600 + tick * 30_000);
    }
    assert_eq!(world.update(64_600 + 300_000), BOTH, "each 5 min");
}

#[test]
fn a_left_node_is_announced_with_other_updates_without_haste() {
    let hasty = |publication: Publication| {
        let record = LinkRecord::decode(&publication.links.expect("a record")).unwrap();
        assert!(
            !record.reports.contains(&LinkReport::PARTED),
            "nobody else needs to know why"
        );
        record.urgency != Urgency::None
    };
    let mut world = World::new();
    (2..=5).for_each(|node| world.measure(node, 50, 0));
    assert_eq!(world.update(0), BOTH);
    world.links.insert(NodeId([1; 32]), LinkReport::PARTED);
    assert_eq!(world.update(29_999), NOTHING);
    assert!(!hasty(world.publish(30_000, None)), "as each 30 s");
    // A dead link is reported at once, together with the parted one.
    world.links.insert(NodeId([2; 32]), LinkReport::PARTED);
    assert_eq!(world.update(39_999), NOTHING);
    world.links.insert(NodeId([3; 32]), LinkReport::DOWN);
    assert!(hasty(world.publish(40_000, None)));
    assert_eq!(world.update(69_999), NOTHING, "both were told");
    assert_eq!(world.update(70_000), LINKS);
    // A link that is up again is reported at once.
    world.links.insert(NodeId([4; 32]), LinkReport::PARTED);
    assert_eq!(world.update(99_999), NOTHING);
    assert!(!hasty(world.publish(100_000, None)));
    world.measure(4, 50, 0);
    assert!(hasty(world.publish(100_200, None)));
}

#[test]
fn leaving_is_announced_at_once() {
    let mut world = World::new();
    world.update(0);
    world.publisher.leave();
    let now = Instant::from_millis(1);
    let publication = world
        .publisher
        .update(now, None, &mut world.provider, &world.links)
        .unwrap();
    let links = LinkRecord::decode(&publication.links.unwrap()).unwrap();
    assert!(links.is_leaving);
    assert_eq!(world.update(2), NOTHING);
}

#[test]
fn a_profile_that_no_record_holds_is_refused() {
    let mut provider = SimProvider::new(Seed::from_number(1));
    let identity = Identity::generate(&mut provider).unwrap();
    let key = provider.signing_key(&identity).unwrap();
    let profile = Profile {
        name: "no spaces".to_owned(),
        ..Profile::default()
    };
    let public = *identity.public_key();
    let made = Publisher::<SimProvider>::new(key, public, Network([1; 16]), profile);
    assert_eq!(made.err(), Some(InvalidProfile));
}

#[test]
fn versions_rise_with_the_clock_and_without_it() {
    let mut world = World::new();
    let mut version = |unix: Option<u64>| {
        world
            .publisher
            .next_version(unix.map(UnixTime::from_millis))
    };
    assert_eq!(version(None), 1);
    assert_eq!(version(Some(1_000)), 1_000);
    assert_eq!(version(Some(500)), 1_001, "the clock went back");
    assert_eq!(version(Some(u64::MAX)), 1_002, "and broke");
    assert_eq!(version(None), 1_003);
}

#[test]
fn at_most_64_neighbours_are_advertised() {
    let mut world = World::new();
    for node in 0..100 {
        world.measure(node, 5, 0);
    }
    let publication = world
        .publisher
        .update(Instant::ZERO, None, &mut world.provider, &world.links)
        .unwrap();
    let node = NodeRecord::decode(&publication.node.unwrap()).unwrap();
    let links = LinkRecord::decode(&publication.links.unwrap()).unwrap();
    assert_eq!(node.neighbours.len(), NEIGHBOURS_MAX);
    assert_eq!(links.reports.len(), NEIGHBOURS_MAX);
    assert_eq!(world.update(1_500), NOTHING, "the cut is not a change");
}

#[test]
fn a_delta_has_all_changes_since_the_record_and_so_has_the_next_record() {
    let mut world = World::new();
    world.measure(2, 50, 0);
    let record = |publication: &Publication| {
        LinkRecord::decode(publication.links.as_ref().unwrap()).unwrap()
    };
    let first = record(&world.publish(0, None));
    assert_eq!((first.follows, first.urgency), (0, Urgency::News));
    world.measure(1, 70, 0);
    let delta = world.publish(5_000, None).delta.unwrap();
    let report = |millis| LinkReport {
        delay: Cost::from_millis(millis),
        loss: LossCode(0),
    };
    assert_eq!(u64::from(delta.base), first.version);
    assert_eq!((delta.after, &delta.changes), (1, &vec![(0, report(70))]));
    world.measure(2, 90, 0);
    let delta = world.publish(6_000, None).delta.unwrap();
    let both = vec![(0, report(70)), (1, report(90))];
    assert_eq!((delta.after, &delta.changes), (2, &both));

    // A small drift is renewed; a large change is repeated, and a delta follows.
    world.measure(1, 71, 0);
    world.measure(2, 30, 0);
    let second = record(&world.publish(30_000, None));
    assert_eq!(u64::from(second.follows), first.version + 2);
    assert_eq!(second.urgency, Urgency::None);
    assert_eq!(second.reports, [report(71), report(90)]);
    let delta = world.publish(30_100, None).delta.unwrap();
    assert_eq!(u64::from(delta.base), second.version);
    assert_eq!(delta.changes, [(1, report(30))]);
}

#[test]
fn a_clock_that_jumps_makes_a_record_of_a_delta() {
    let mut world = World::new();
    world.update(0);
    world.measure(1, 90, 0);
    let jump = world.publish(5_000, Some(1_000_000));
    assert_eq!((jump.links, jump.delta), (None, None));
    let record = world.publish(5_100, Some(1_000_100)).links.unwrap();
    let record = LinkRecord::decode(&record).unwrap();
    assert_eq!(record.version, 1_000_100);
    assert_eq!(
        record.reports[0].delay,
        Cost::from_millis(50),
        "as told before"
    );
    let delta = world.publish(5_200, Some(1_000_200)).delta.unwrap();
    assert_eq!(delta.after, 100);
}

#[test]
fn a_root_renews_its_record_each_3_s_until_it_resigns() {
    let mut world = World::new();
    world.update(0);
    world.publisher.become_root();
    assert_eq!(world.update(2_900), NOTHING);
    let record = world.publish(3_000, None).links.unwrap();
    assert_eq!(LinkRecord::decode(&record).unwrap().urgency, Urgency::Root);
    world.publisher.step_down();
    assert_eq!(world.update(32_900), NOTHING);
    assert_eq!(world.update(33_000), LINKS);
}
