//! Memory of mailboxes and of players who are online, by counted allocations.
//!
//! `ALL_SIZES=1` measures a million of each.

use hub::log::MemorySegments;
use hub::store::NewMail;
use hub::{
    Addr, Command, Completed, Epoch, HubConfig, LogId, SenderSeq, Store, StoreConfig, StoreOp,
};
use wire::{ClientId, CommandId, InstanceId, StreamMachine, UnixTime};

use crate::alloc::held;
use crate::bare::{Bare, LINK, NOW, OTHER, claim};
use crate::world::node_id;

fn count() -> u64 {
    let is_full = std::env::var_os("ALL_SIZES").is_some();
    if is_full { 1_000_000 } else { 100_000 }
}

/// Executes the store's operations in batches of 1,000.
fn execute(store: &mut Store<MemorySegments>, ops: impl Iterator<Item = StoreOp>) {
    let mut ops = ops.peekable();
    while ops.peek().is_some() {
        let batch = ops.by_ref().take(1_000);
        let batch: Vec<_> = batch.map(|op| (CommandId(1), Command::Store(op))).collect();
        let mut outcomes = Vec::new();
        store.execute(batch, &mut outcomes);
        for (_, outcome) in outcomes {
            outcome.unwrap();
        }
        while store.keep_up() {}
    }
}

#[test]
fn hub_6_mailboxes_of_one_sender_take_54_bytes_each_and_empty_ones_none() {
    let mut config = StoreConfig::default();
    config.snapshot_after = u64::MAX;
    let disk = MemorySegments::new(4 << 30);
    let mut store = Store::open(disk, config, LogId(1)).unwrap();
    let join = StoreOp::Join {
        node: node_id(0),
        instance: InstanceId(1),
        epoch: Epoch(0),
        role: hub::Role::GameNode,
    };
    execute(&mut store, std::iter::once(join));
    let count = count();
    let mails = (1..=count).map(|number| NewMail {
        to: Addr::Player(ClientId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))).into(),
        node: node_id(0),
        epoch: Epoch(1),
        seq: SenderSeq(number),
        settled: SenderSeq(number - 1),
        expires: UnixTime::from_secs(2_000_000_000),
        priority: 0,
        body: bytes::Bytes::from_static(&[7; 64]).into(),
    });
    execute(&mut store, mails.map(|mail| StoreOp::Append(vec![mail])));
    assert_eq!(store.mail_count() as u64, count);
    let disk = |store: Store<MemorySegments>| {
        let before = held();
        let disk = store.into_files();
        (before - held(), disk)
    };
    let (bytes, files) = disk(store);
    let each = bytes / i64::try_from(count).unwrap();
    assert!(each <= 54, "{each} bytes a mailbox of one mail");
    let mut store = Store::open(files, config, LogId(1)).unwrap();
    let clears = (1..=count).map(|number| StoreOp::Clear {
        player: ClientId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    });
    execute(&mut store, clears);
    assert_eq!(store.mail_count(), 0);
    let (empty, _) = disk(store);
    assert!(empty < 100_000, "{empty} bytes for all empty mailboxes");
    eprintln!("{count} mailboxes: {each} bytes with a mail, {empty} bytes for all empty ones");
}

#[test]
fn hub_6_a_player_who_is_online_takes_at_most_250_bytes() {
    let count = count();
    let mut config = HubConfig::default();
    config.players_max = usize::try_from(count).unwrap();
    config.node_players_max = config.players_max;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    for link in [LINK, OTHER] {
        bare.hub.handle_credit(NOW, link, 1 << 40);
    }
    bare.written(LINK);
    let before = held();
    for number in 0..count {
        let link = if number % 2 == 0 { LINK } else { OTHER };
        bare.send(link, &claim(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        while let Some((id, _)) = bare.hub.poll_command() {
            let mails = Vec::new();
            let read = Completed::Mails { mails, more: false };
            bare.hub.handle_completed(NOW, id, Ok(read));
        }
        if number % 100 == 0 {
            bare.written(LINK);
        }
    }
    bare.written(LINK);
    assert_eq!(bare.hub.player_count() as u64, count);
    let each = (held() - before) / i64::try_from(count).unwrap();
    eprintln!("{count} players online: {each} bytes each");
    assert!(each <= 250, "{each} bytes a player");
}
