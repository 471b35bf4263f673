mod deltas;
mod pace;

use super::*;
use crate::cost::{Cost, LossCode};
use crate::link_state::{Admission, Message, Publisher, Urgency};
use crate::measure::LinkReport;
use core::time::Duration;
use crypto::Identity;
use netsim::provider::SimProvider;
use wire::{Seed, UnixTime};

const NETWORK: Network = Network([9; 16]);
const PEER: NodeId = NodeId([0xee; 32]);

/// Two neighbours of an origin.
const NEIGHBOURS: [NodeId; 2] = [NodeId([1; 32]), NodeId([2; 32])];

/// A node that publishes.
struct Origin {
    provider: SimProvider,
    identity: Identity,
    publisher: Publisher<SimProvider>,
}

/// Both records of one publication.
struct Records {
    node: Vec<u8>,
    links: Vec<u8>,
}

impl Origin {
    fn new(seed: u64) -> Self {
        let mut provider = SimProvider::new(Seed::from_number(seed));
        let identity = Identity::generate(&mut provider).unwrap();
        Self::start(provider, identity)
    }

    fn start(mut provider: SimProvider, identity: Identity) -> Self {
        let key = provider.signing_key(&identity).unwrap();
        let profile = Profile {
            roles: Roles::ALL,
            ..Profile::default()
        };
        let public = *identity.public_key();
        Self {
            publisher: Publisher::new(key, public, NETWORK, profile).unwrap(),
            provider,
            identity,
        }
    }

    fn id(&self) -> NodeId {
        self.identity.node_id()
    }

    /// Publishes as if everything were due.
    fn publish(&mut self, unix: Option<u64>, neighbours: &[NodeId]) -> Records {
        self.publisher.raise(self.publisher.version() + 1);
        let report = LinkReport {
            delay: Cost::from_millis(20),
            loss: LossCode(0),
        };
        let links = neighbours.iter().map(|&id| (id, report)).collect();
        let unix = unix.map(UnixTime::from_millis);
        let publication = self
            .publisher
            .update(Instant::ZERO, unix, &mut self.provider, &links)
            .unwrap();
        Records {
            node: publication.node.unwrap(),
            links: publication.links.unwrap(),
        }
    }
}

fn provider() -> SimProvider {
    SimProvider::new(Seed::from_number(0))
}

fn table(config: TableConfig) -> LinkStateTable {
    LinkStateTable::new(config, NETWORK, NodeId([0; 32]))
}

/// Passes both records to the table; returns the outcomes.
fn accept(table: &mut LinkStateTable, now: Instant, records: &Records) -> (Outcome, Outcome) {
    let provider = provider();
    (
        table.accept_node(now, &provider, PEER, &records.node),
        table.accept_links(now, &provider, PEER, &records.links),
    )
}

/// Passes one message of an answer to the table.
fn take(table: &mut LinkStateTable, message: &Message<'_>) -> Outcome {
    if let Message::NodeRecord(bytes) = message {
        table.accept_node(Instant::ZERO, &provider(), PEER, bytes)
    } else if let Message::LinkRecord(bytes) = message {
        table.accept_links(Instant::ZERO, &provider(), PEER, bytes)
    } else {
        panic!("{message:?} answers no request")
    }
}

/// A link record that follows an earlier publication.
fn record(
    origin: &mut Origin,
    node: &[u8],
    (version, follows): (u64, u32),
    millis: u16,
) -> Vec<u8> {
    let key = origin.provider.signing_key(&origin.identity).unwrap();
    let hash = NodeRecord::hash(&origin.provider, node);
    let report = |millis| LinkReport {
        delay: Cost::from_millis(millis),
        loss: LossCode(0),
    };
    let record = LinkRecord {
        origin: origin.id(),
        version,
        list: *hash.first_chunk().unwrap(),
        is_leaving: false,
        urgency: Urgency::None,
        follows,
        reports: vec![report(millis), report(20)],
    };
    record
        .sign(&mut origin.provider, &key, NETWORK, &hash)
        .unwrap()
}

const TAKEN: (Outcome, Outcome) = (Outcome::Accepted, Outcome::Accepted);
const STALE: (Outcome, Outcome) = (Outcome::Stale, Outcome::Stale);

#[test]
fn pg6_only_newer_versions_are_taken_and_each_once() {
    let mut origin = Origin::new(1);
    let (old, new) = (origin.publish(None, &[PEER]), origin.publish(None, &[PEER]));
    let mut table = table(TableConfig::default());
    assert_eq!(accept(&mut table, Instant::ZERO, &old), TAKEN);
    assert_eq!(accept(&mut table, Instant::ZERO, &old), STALE);
    assert_eq!(accept(&mut table, Instant::ZERO, &new), TAKEN);
    assert_eq!(accept(&mut table, Instant::ZERO, &old), STALE);
    assert_eq!((table.stats().accepted, table.stats().stale), (4, 4));
}

#[test]
fn a_link_record_waits_for_its_own_list_and_no_other() {
    let mut origin = Origin::new(1);
    let old = origin.publish(None, &[PEER]);
    let new = origin.publish(None, &[PEER, NodeId([5; 32])]);
    let short = ShortId::from(origin.id());
    let needs = Outcome::NeedsNodeRecord(short);
    let (mut table, provider) = (table(TableConfig::default()), provider());
    let links = |table: &mut LinkStateTable, record: &Records| {
        table.accept_links(Instant::ZERO, &provider, PEER, &record.links)
    };
    assert_eq!(links(&mut table, &old), needs);
    assert_eq!(accept(&mut table, Instant::ZERO, &old), TAKEN);
    assert_eq!(links(&mut table, &new), needs);
    assert_eq!(accept(&mut table, Instant::ZERO, &new), TAKEN);
    assert_eq!(table.stats().unlisted, 2);
}

#[test]
fn pg6_forged_foreign_and_malformed_records_are_refused_and_counted() {
    let mut origin = Origin::new(1);
    let records = origin.publish(None, &[PEER]);
    let listed = TableConfig {
        admission: Admission::Listed(BTreeMap::new()),
        ..TableConfig::default()
    };
    let refused = |refusal| Outcome::Refused(refusal);
    let mut closed = table(listed);
    let outcomes = accept(&mut closed, Instant::ZERO, &records);
    assert_eq!(outcomes.0, refused(Refusal::NotAdmitted));
    assert_eq!(closed.stats().not_admitted, 2);

    let (mut table, provider) = (table(TableConfig::default()), provider());
    let mut changed = records.node.clone();
    *changed.last_mut().unwrap() ^= 1;
    let node = |table: &mut LinkStateTable, bytes: &[u8]| {
        table.accept_node(Instant::ZERO, &provider, PEER, bytes)
    };
    assert_eq!(node(&mut table, &changed), refused(Refusal::Forged));
    assert_eq!(node(&mut table, &changed[1..]), refused(Refusal::Malformed));
    assert_eq!(node(&mut table, &records.node), Outcome::Accepted);
    let mut changed = records.links.clone();
    changed[40 + 4] ^= 1;
    let forged = table.accept_links(Instant::ZERO, &provider, PEER, &changed);
    assert_eq!(forged, refused(Refusal::Forged));
    assert_eq!((table.stats().forged, table.stats().malformed), (2, 1));
}

#[test]
fn a_neighbour_has_its_budget_of_checks_and_a_forger_less() {
    let config = TableConfig {
        verify_burst: 40,
        verify_rate: 1,
        ..TableConfig::default()
    };
    let mut table = table(config);
    let mut origin = Origin::new(1);
    let provider = provider();
    let good = origin.publish(None, &[]);
    let mut forged = good.node.clone();
    *forged.last_mut().unwrap() ^= 1;
    let outcomes: Vec<Outcome> = (0..9)
        .map(|_| table.accept_node(Instant::ZERO, &provider, PEER, &forged))
        .collect();
    let over = Outcome::Refused(Refusal::OverBudget);
    assert_eq!(outcomes[1], Outcome::Refused(Refusal::Forged));
    assert_eq!(outcomes[2..], [over; 7], "40 checks are 2 failed ones");
    let honest = NodeId([7; 32]);
    let outcome = table.accept_node(Instant::ZERO, &provider, honest, &good.node);
    assert_eq!(outcome, Outcome::Accepted, "others pay nothing");
}

#[test]
fn a_full_table_keeps_live_entries_and_reuses_dead_ones() {
    let config = TableConfig {
        nodes_max: 3,
        ..TableConfig::default()
    };
    let mut table = table(config);
    let mut records: Vec<Records> = (1..=5)
        .map(|seed| Origin::new(seed).publish(None, &[]))
        .collect();
    let (last, late) = (records.pop().unwrap(), records.pop().unwrap());
    for (index, record) in records.iter().enumerate() {
        let now = Instant::from_millis(index as u64 * 1_000);
        assert_eq!(accept(&mut table, now, record), TAKEN);
    }
    let now = Instant::from_millis(80_000);
    table.expire(now);
    let refused = accept(&mut table, now, &late).0;
    assert_eq!(refused, Outcome::Refused(Refusal::NoRoom));

    let now = Instant::from_millis(91_500);
    table.expire(now);
    let live = |table: &LinkStateTable| table.nodes().filter(|(_, is_live)| *is_live).count();
    assert_eq!(live(&table), 1);
    assert_eq!(accept(&mut table, now, &late), TAKEN);
    assert_eq!(accept(&mut table, now, &last), TAKEN);
    assert_eq!((table.nodes().count(), live(&table)), (3, 3));
}

#[test]
fn a_dead_node_is_not_passed_round_for_ever() {
    let mut origin = Origin::new(1);
    let records = origin.publish(None, &[PEER]);
    let [mut a, mut b] = [0, 1].map(|_| table(TableConfig::default()));
    accept(&mut a, Instant::ZERO, &records);
    accept(&mut b, Instant::from_millis(60_000), &records);
    let now = Instant::from_millis(90_000);
    a.expire(now);
    b.expire(now);
    assert_eq!(a.digest().entries().len(), 0);
    assert_eq!(b.digest().entries().len(), 1, "b still believes");
    assert_eq!(a.missing(&b.digest()), Request::default());
    assert_eq!(accept(&mut a, now, &records), STALE);
    assert_eq!(
        accept(&mut a, now, &origin.publish(None, &[])),
        TAKEN,
        "it is back"
    );
}

#[test]
fn a_restarted_node_resumes_above_its_old_sequence_with_any_clock() {
    for clock in [None, Some(5), Some(999_990), Some(u64::MAX)] {
        let mut before = Origin::new(1);
        // The neighbour holds a node record, and newer link records.
        let old = before.publish(Some(1_000_000), &[PEER]);
        let provider = provider();
        let mut neighbour = table(TableConfig::default());
        accept(&mut neighbour, Instant::ZERO, &old);

        let mut after = Origin::start(before.provider, before.identity);
        let mut own = LinkStateTable::new(TableConfig::default(), NETWORK, after.id());
        let first = after.publish(clock, &[]);
        own.publish(Instant::ZERO, &provider, &first.node);
        own.publish(Instant::ZERO, &provider, &first.links);
        let request = own.missing(&neighbour.digest());
        let origins: Vec<ShortId> = request.origins().iter().map(|(short, _)| *short).collect();
        assert_eq!(origins, [ShortId::from(after.id())], "{clock:?}");
        let mut raised = 0;
        for message in neighbour.answer(&request) {
            let outcome = take(&mut own, &message);
            if let Outcome::OwnFromBefore(version) = outcome {
                after.publisher.raise(version);
                raised = version;
            }
        }
        assert_eq!(raised, 1_000_001, "{clock:?}");
        let second = after.publish(clock, &[]);
        assert_eq!(accept(&mut neighbour, Instant::ZERO, &second), TAKEN);
    }
}

#[test]
fn mesh_a1_a_refused_record_is_not_reported_missing() {
    let (mut member, mut second) = (Origin::new(1), Origin::new(2));
    let (id, other) = (ShortId::from(member.id()), ShortId::from(second.id()));
    let outsider = ShortId([7; 8]);
    let misses = |table: &LinkStateTable, id| (table.lacks(id, 9), table.lacks_record(id, 9));
    let mut closed = table(TableConfig {
        admission: Admission::Listed([(member.id(), Roles::ALL)].into()),
        ..TableConfig::default()
    });
    assert_eq!(misses(&closed, id), (true, true));
    assert_eq!(misses(&closed, outsider), (false, false), "no member");
    closed.set_admission(Admission::Anyone);
    assert_eq!(misses(&closed, outsider), (true, true));

    let mut full = table(TableConfig {
        nodes_max: 1,
        ..TableConfig::default()
    });
    assert_eq!(misses(&full, other), (true, true));
    let records = member.publish(None, &[]);
    assert_eq!(accept(&mut full, Instant::ZERO, &records), TAKEN);
    assert_eq!(misses(&full, other), (false, false), "it is full");
    let end = Instant::from_millis(90_000);
    full.expire(end);
    assert_eq!(misses(&full, other), (true, true), "one is dead");
    assert_eq!(accept(&mut full, end, &second.publish(None, &[])), TAKEN);
    assert_eq!(misses(&full, id), (false, false), "it has its place");
}

#[test]
fn a_restarted_node_resumes_above_its_old_sequence_after_expiry() {
    for (clock, renewals) in [(None, 0), (None, 3), (Some(5), 0), (Some(5), 3)] {
        let mut before = Origin::new(1);
        let old = before.publish(Some(1_000_000), &[PEER]);
        let provider = provider();
        let mut neighbour = table(TableConfig::default());
        assert_eq!(accept(&mut neighbour, Instant::ZERO, &old), TAKEN);
        // Link records bound to the same node record.
        let mut at = Instant::ZERO;
        for _ in 0..renewals {
            at += Duration::from_secs(31);
            let report = LinkReport::DOWN;
            let links = [(PEER, report)].into();
            let update = before
                .publisher
                .update(at, None, &mut before.provider, &links);
            let links = update.unwrap().links.unwrap();
            let outcome = neighbour.accept_links(at, &provider, PEER, &links);
            assert_eq!(outcome, Outcome::Accepted);
        }
        let now = at + Duration::from_secs(91);
        neighbour.expire(now);
        assert_eq!(neighbour.digest(), Digest::default());
        assert_eq!(accept(&mut neighbour, now, &old).0, Outcome::Stale, "held");

        let mut after = Origin::start(before.provider, before.identity);
        let mut own = LinkStateTable::new(TableConfig::default(), NETWORK, after.id());
        let first = after.publish(clock, &[]);
        own.publish(now, &provider, &first.node);
        own.publish(now, &provider, &first.links);
        let (node, links) = accept(&mut neighbour, now, &first);
        let short = ShortId::from(after.id());
        assert_eq!(node, Outcome::BelowExpired(short));
        assert_eq!(links, Outcome::BelowExpired(short));
        let (node, links) = neighbour.last_records(short).unwrap();
        for message in [
            Message::NodeRecord(node),
            Message::LinkRecord(links.unwrap()),
        ] {
            let Outcome::OwnFromBefore(version) = take(&mut own, &message) else {
                panic!("its own, and newer");
            };
            after.publisher.raise(version);
        }
        let second = after.publish(clock, &[]);
        assert_eq!(accept(&mut neighbour, now, &second), TAKEN);
        assert_eq!(neighbour.digest().entries().len(), 1, "it is back");
        assert_eq!(accept(&mut neighbour, now, &first), STALE, "and heard");
    }
}

#[test]
fn a_newcomer_gets_everything_from_any_one_neighbour() {
    let config = TableConfig {
        verify_burst: 1_000,
        ..TableConfig::default()
    };
    let [mut full, mut late] = [config.clone(), config].map(table);
    for seed in 0..150 {
        accept(
            &mut full,
            Instant::ZERO,
            &Origin::new(seed).publish(None, &[PEER]),
        );
    }
    let digest = full.digest();
    let mut rounds = 0;
    loop {
        let request = late.missing(&digest);
        if request.origins().is_empty() {
            break;
        }
        rounds += 1;
        for message in full.answer(&request) {
            let outcome = take(&mut late, &message);
            assert_eq!(outcome, Outcome::Accepted);
        }
    }
    assert_eq!(rounds, 3, "150 origins at 64 a request");
    assert_eq!(late.digest(), digest);
}

/// Random bytes, and genuine records with random changes, to every handler.
#[test]
fn nothing_unsigned_is_accepted() {
    let mut noise = Seed::from_number(11).generator(0);
    let mut origin = Origin::new(1);
    let records = origin.publish(None, &[PEER]);
    let config = TableConfig {
        verify_burst: u32::MAX,
        ..TableConfig::default()
    };
    let mut table = table(config);
    assert_eq!(accept(&mut table, Instant::ZERO, &records), TAKEN);
    let newer = origin.publish(None, &[PEER]);
    for _ in 0..300 {
        let mut changed = [newer.node.clone(), newer.links.clone()];
        for bytes in &mut changed {
            let at = usize::try_from(noise.below(bytes.len() as u64)).unwrap();
            bytes[at] ^= 1 << noise.below(8);
            if noise.chance(100_000) {
                noise.fill(bytes);
            }
        }
        let [node, links] = changed;
        let outcomes = accept(&mut table, Instant::ZERO, &Records { node, links });
        assert!(!matches!(outcomes.0, Outcome::Accepted), "{outcomes:?}");
        assert!(!matches!(outcomes.1, Outcome::Accepted), "{outcomes:?}");
    }
    assert!(table.stats().forged > 100 && table.stats().malformed > 10);
    assert_eq!(accept(&mut table, Instant::ZERO, &newer), TAKEN);
}

#[test]
fn pg6_pgd_p18_lifetime_is_how_long_a_link_record_counts() {
    for lifetime in [10, 90, 600] {
        let mut table = table(TableConfig {
            lifetime: Duration::from_secs(lifetime),
            ..TableConfig::default()
        });
        let mut origin = Origin::new(1);
        let records = origin.publish(None, &[PEER]);
        assert_eq!(accept(&mut table, Instant::ZERO, &records), TAKEN);
        let is_live = |table: &LinkStateTable| table.nodes().any(|(_, is_live)| is_live);
        let end = Instant::ZERO + Duration::from_secs(lifetime);
        table.expire(end.saturating_sub(Duration::from_millis(1)));
        assert!(is_live(&table) && !table.digest().entries().is_empty());
        table.expire(end);
        assert!(!is_live(&table) && table.digest().entries().is_empty());
    }
}

#[test]
fn records_of_another_secret_are_accepted_only_if_configured() {
    let records = Origin::new(1).publish(None, &[PEER]);
    let own = NodeId([0; 32]);
    let other = |also| {
        let config = TableConfig {
            verify_burst: 1_000,
            verify_rate: 0,
            ..TableConfig::default()
        };
        let mut table = LinkStateTable::new(config, Network([1; 16]), own);
        if let Some(network) = also {
            table.accept_also(network);
        }
        table
    };
    assert_eq!(
        accept(&mut other(Some(NETWORK)), Instant::ZERO, &records),
        TAKEN
    );
    let forged = Outcome::Refused(Refusal::Forged);
    for (also, checks) in [(None, 1 + 31), (Some(Network([2; 16])), 2 + 31)] {
        let mut table = other(also);
        let takes = (0..100).take_while(|_| {
            let provider = provider();
            table.accept_node(Instant::ZERO, &provider, PEER, &records.node) == forged
        });
        // The last one may exceed the budget.
        assert_eq!(takes.count(), 1_000_usize.div_ceil(checks));
    }
}
