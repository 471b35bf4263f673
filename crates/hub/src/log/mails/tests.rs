//! The block structure, compared with ordered maps.

use std::collections::BTreeMap;

use wire::{Generator, Seed};

use super::super::senders::SenderUsage;
use super::super::snapshot_format::MailSize;
use super::*;

const SENDERS: u16 = 3;

fn node(sender: u16) -> NodeId {
    NodeId([u8::try_from(sender).unwrap(); 32])
}

/// What [`Mails`] holds, in one map.
#[derive(Default)]
struct Model(BTreeMap<Key, IndexEntry>);

impl Model {
    fn check(&self, mails: &Mails) {
        let entries: Vec<_> = mails.entries_from(FIRST).copied().collect();
        let expected: Vec<_> = self.0.values().copied().collect();
        assert_eq!(entries, expected);
        assert_eq!(mails.len(), expected.len());
        let mut all = 0;
        for segment in 0..12 {
            let of_segment = expected.iter().filter(|entry| { entry.segment } == segment);
            let bytes = live_bytes(of_segment);
            assert_eq!(mails.live_in(SegmentId(segment.into())), bytes, "{segment}");
            all += bytes;
        }
        assert_eq!(mails.live_bytes(), all);
        for sender in 1..=SENDERS {
            let of_sender = || expected.iter().filter(|entry| { entry.sender } == sender);
            let usage = SenderUsage {
                mails: of_sender().count() as u64,
                bytes: live_bytes(of_sender()),
            };
            assert_eq!(mails.senders().of_node(node(sender)), usage);
        }
        for player in (0..12).map(ClientId) {
            let mut size = Mailbox::default();
            let of_player = expected.iter().filter(|entry| { entry.player } == player);
            of_player.for_each(|entry| size.add(entry));
            assert_eq!(mails.mailbox(player), size, "{player:?}");
        }
        let keys: Vec<_> = mails.blocks.keys().collect();
        for (at, block) in &mails.blocks {
            assert!((1..=BLOCK_MAX).contains(&block.entries.len()));
            assert!(block.entries.iter().all(|entry| entry.key() >= *at));
            assert!(block.earliest <= block.find_earliest());
            assert!(mails.expiry.contains(&(block.earliest, *at)));
        }
        assert_eq!(mails.expiry.len(), keys.len());
    }
}

/// The bytes of all records, those that are shared once.
fn live_bytes<'a>(entries: impl Iterator<Item = &'a IndexEntry>) -> u64 {
    let (shared, own): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.size.is_shared());
    let shared = shared
        .into_iter()
        .map(|entry: &IndexEntry| ((entry.segment, entry.offset), entry.size.record_bytes()));
    let shared: BTreeMap<_, _> = shared.collect();
    let own = own.into_iter().map(|entry| entry.size.record_bytes());
    own.chain(shared.into_values()).map(u64::from).sum()
}

/// Does the same to both: stores, copies, removes, acknowledges or expires.
fn change(mails: &mut Mails, model: &mut Model, player: ClientId, generator: &mut Generator) {
    let last = mails.entries_from(FIRST).map(|entry| entry.seq.0).max();
    let last = last.unwrap_or(0);
    let nth = usize::try_from(generator.below(model.0.len() as u64 + 1)).unwrap();
    let any = model.0.values().nth(nth).copied();
    match generator.below(30) {
        0 => {
            let upto = MailSeq(generator.below(last + 1));
            mails.acknowledge(player, upto);
            model.0.retain(|key, _| key.0 != player || key.1 > upto);
        }
        1 if generator.chance(200_000) => {
            let now = UnixTime::from_millis(generator.below(40_000) + 999);
            let max = u32::try_from(generator.below(200)).unwrap();
            let before = mails.len();
            let count = mails.expire(now, max);
            assert!(count <= max);
            assert_eq!(before - mails.len(), usize::try_from(count).unwrap());
            // Which of the expired mails are deleted is not defined.
            let left: Vec<_> = mails.entries_from(FIRST).map(IndexEntry::key).collect();
            model.0.retain(|key, entry| {
                let is_left = left.binary_search(key).is_ok();
                assert!(is_left || u64::from(entry.expires_s) <= now.as_secs());
                is_left
            });
        }
        1 if generator.chance(20_000) => {
            let sender = 1 + u16::try_from(generator.below(SENDERS.into())).unwrap();
            mails.purge(sender);
            model.0.retain(|_, entry| entry.sender != sender);
        }
        2 | 3 => {
            let key = any.map_or((player, MailSeq(last + 9)), |entry| entry.key());
            mails.remove(key.0, key.1);
            model.0.remove(&key);
        }
        kind => {
            let fresh = IndexEntry {
                player,
                seq: MailSeq(last + 1),
                segment: 0,
                offset: 0,
                size: MailSize::own(u32::try_from(generator.below(500)).unwrap() + 77),
                expires_s: u32::try_from(generator.below(50)).unwrap(),
                sender: 1 + u16::try_from(generator.below(SENDERS.into())).unwrap(),
            };
            let copied = any.filter(|_| kind == 4);
            let mut entry = copied.unwrap_or(fresh);
            entry.segment = u32::try_from(generator.below(12)).unwrap();
            if generator.chance(300_000) {
                // One of a few records that many mails share.
                entry.offset = u32::try_from(generator.below(3)).unwrap();
                entry.size = MailSize::shared(5_000 + entry.offset, 100);
                // Its mails have one sender.
                let place = entry.segment + entry.offset;
                entry.sender = 1 + u16::try_from(place).unwrap() % SENDERS;
            } else {
                entry.size = MailSize::own(entry.size.record_bytes());
            }
            mails.put(entry);
            model.0.insert(entry.key(), entry);
        }
    }
}

#[test]
fn blocks_hold_what_one_ordered_map_holds() {
    for seed in 0..8 {
        let mut generator = Seed::from_number(seed).generator(0);
        let (mut mails, mut model) = (Mails::default(), Model::default());
        for sender in 1..=SENDERS {
            assert_eq!(mails.senders_mut().number(node(sender), None), sender);
        }
        // Two players have long mailboxes, many have short ones.
        let players = if seed % 2 == 0 { 2 } else { 12 };
        for step in 0..4_000 {
            let player = ClientId(generator.below(players));
            change(&mut mails, &mut model, player, &mut generator);
            if step % 100 == 0 {
                model.check(&mails);
            }
        }
        assert!(mails.blocks.len() > 2, "{seed}: {}", mails.len());
        model.check(&mails);
        // Loaded in order, it is the same.
        let mut loader = Loader::default();
        assert!(model.0.values().all(|entry| loader.push(*entry)));
        let last = *model.0.values().last().unwrap();
        assert!(!loader.push(last), "twice");
        for sender in 1..=SENDERS {
            assert!(loader.add_sender(sender, node(sender)));
        }
        let loaded = loader.finish().unwrap();
        model.check(&loaded);
        assert_eq!(loaded, mails);
        mails.expire(UnixTime::from_secs(50), u32::MAX);
        assert_eq!((mails.len(), mails.blocks.len()), (0, 0));
        assert!(
            mails.sizes.long.is_empty()
                && mails.sizes.live.is_empty()
                && mails.sizes.shared.is_empty()
        );
    }
}

#[test]
fn one_step_deletes_and_reads_a_bounded_number() {
    let mut mails = Mails::default();
    for seq in 0..100_000 {
        let entry = IndexEntry {
            player: ClientId(seq % 1_000),
            seq: MailSeq(seq),
            segment: 1,
            offset: 0,
            size: MailSize::own(100),
            expires_s: 10,
            sender: 0,
        };
        mails.put(entry);
    }
    for left in [99_000, 98_000] {
        assert_eq!(mails.expire(UnixTime::from_secs(10), 1_000), 1_000);
        assert_eq!(mails.len(), left);
    }
    assert_eq!(mails.expire(UnixTime::from_secs(9), 1_000), 0);
}

#[test]
fn what_never_expires_stays() {
    let mut mails = Mails::default();
    let entry = MailEntry {
        place: Place::default(),
        size: MailSize::own(100),
        expires: UnixTime::from_millis(u64::MAX),
        sender: 0,
    };
    mails.put(IndexEntry::new(ClientId(1), MailSeq(1), &entry));
    assert_eq!(mails.expire(UnixTime::from_millis(u64::MAX), 10), 0);
    let found = mails.get(ClientId(1), MailSeq(1)).unwrap();
    assert_eq!(found, entry);
}

#[test]
fn many_mails_at_once_are_put_as_one_after_the_other() {
    for seed in 0..24 {
        let mut generator = Seed::from_number(seed).generator(0);
        let (mut mails, mut model) = (Mails::default(), Model::default());
        for sender in 1..=SENDERS {
            mails.senders_mut().number(node(sender), None);
        }
        let players = if seed % 2 == 0 { 2 } else { 12 };
        for _ in 0..30 {
            for _ in 0..generator.below(100) {
                let player = ClientId(generator.below(players));
                change(&mut mails, &mut model, player, &mut generator);
            }
            let last = mails.entries_from(FIRST).map(|entry| entry.seq.0).max();
            let mut seq = last.unwrap_or(0);
            let known: Vec<_> = model.0.values().copied().collect();
            let mut batch: Vec<IndexEntry> = Vec::new();
            for _ in 0..generator.below(600) {
                seq += 1;
                let mut entry = IndexEntry {
                    player: ClientId(generator.below(players)),
                    seq: MailSeq(seq),
                    segment: u32::try_from(generator.below(12)).unwrap(),
                    offset: 0,
                    size: MailSize::own(u32::try_from(generator.below(500)).unwrap() + 77),
                    expires_s: u32::try_from(generator.below(50)).unwrap(),
                    sender: 1 + u16::try_from(generator.below(SENDERS.into())).unwrap(),
                };
                // Copies of stored mails, and of those in the batch, replace them.
                let from = if generator.chance(50_000) {
                    &known
                } else {
                    &batch
                };
                if generator.chance(200_000) && !from.is_empty() {
                    let nth = generator.below(from.len() as u64);
                    let copied = from[usize::try_from(nth).unwrap()];
                    (entry.player, entry.seq) = copied.key();
                }
                if generator.chance(200_000) {
                    entry.offset = u32::try_from(generator.below(3)).unwrap();
                    entry.size = MailSize::shared(5_000 + entry.offset, 100);
                    let place = entry.segment + entry.offset;
                    entry.sender = 1 + u16::try_from(place).unwrap() % SENDERS;
                }
                batch.push(entry);
            }
            for entry in &batch {
                model.0.insert(entry.key(), *entry);
            }
            batch.sort_by_key(|entry| entry.player);
            mails.put_all(&mut batch);
            assert_eq!(batch, []);
            model.check(&mails);
        }
    }
}
