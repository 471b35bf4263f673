//! A joined node that lies: it acts for players, requests and services of others, and sends unknown
//! records.

use bytes::Bytes;
use hub::record::{CallRequest, DownReason, ToHub, ToNode};
use hub::store::Mail;
use hub::{
    Addr, CallId, ClaimNumber, Command, Completed, Epoch, HubConfig, MailSeq, Redacted, SenderSeq,
    StoreOp,
};
use wire::{ClientId, StreamMachine};

use crate::bare::{Bare, LINK, NOW, OTHER, THIRD, claim, down, three};
use crate::world::node_id;

const PLAYER: ClientId = ClientId(7);

/// The commands to the store that are not reads.
fn writes(bare: &mut Bare) -> Vec<Command> {
    bare.drain_commands();
    let commands = bare.commands.drain(..).map(|(_, command)| command);
    commands
        .filter(|command| !matches!(command, Command::Store(StoreOp::Read { .. })))
        .collect()
}

#[test]
fn hub_5_a_node_acknowledges_and_releases_no_player_of_another() {
    let mut bare = three(HubConfig::default());
    bare.send(OTHER, &claim(PLAYER.0));
    for upto in [MailSeq(1), MailSeq(999_999), MailSeq(u64::MAX)] {
        let player = PLAYER;
        bare.send(LINK, &ToHub::MailAck { player, upto });
    }
    for number in 0..4 {
        let (player, claim) = (PLAYER, ClaimNumber(number));
        bare.send(LINK, &ToHub::Release { player, claim });
    }
    assert_eq!(writes(&mut bare), []);
    assert_eq!(bare.hub.holder(PLAYER), Some(node_id(1)));
}

#[test]
fn hub_5_mail_is_delivered_to_the_holder_and_no_other_node() {
    let mut bare = three(HubConfig::default());
    bare.send(OTHER, &claim(PLAYER.0));
    bare.drain_commands();
    let (id, _) = bare.commands.pop().unwrap();
    bare.written(OTHER);
    let mail = Mail {
        seq: MailSeq(1),
        node: node_id(2),
        epoch: Epoch(1),
        sender_seq: SenderSeq(1),
        body: Redacted(Bytes::from_static(b"secret")),
    };
    let mails = vec![mail];
    let read = Completed::Mails { mails, more: false };
    bare.hub.handle_completed(NOW, id, Ok(read));
    let mut receivers = Vec::new();
    let mut record = Vec::new();
    while let Some(outbound) = bare.hub.poll_outbound(NOW, &mut record) {
        if record.windows(6).any(|bytes| bytes == b"secret") {
            receivers.push(outbound.connection);
        }
        record.clear();
    }
    assert_eq!(receivers, [OTHER]);
}

#[test]
fn hub_5_a_node_answers_no_request_that_another_received() {
    let mut bare = three(HubConfig::default());
    bare.send(
        LINK,
        &ToHub::Call(CallRequest {
            call: CallId(1),
            timeout_ms: 1_000,
            to: Addr::Node(node_id(1)),
            body: Redacted(b"?"),
        }),
    );
    let (records, _) = bare.written(OTHER);
    let Ok(ToNode::Request(request)) = ToNode::decode(&records[0]) else {
        panic!("{records:?}");
    };
    let request = request.request;
    for (from, text) in [(THIRD, "forged"), (OTHER, "genuine")] {
        let result = Ok(Redacted(text.as_bytes()));
        bare.send(from, &ToHub::Reply { request, result });
    }
    let (records, _) = bare.written(LINK);
    let [record] = &records[..] else {
        panic!("{records:?}");
    };
    let expected = Ok(Redacted(&b"genuine"[..]));
    let answer = ToNode::decode(record);
    assert!(
        matches!(&answer, Ok(ToNode::Reply { result, .. }) if *result == expected),
        "{answer:?}"
    );
    assert_eq!(bare.hub.stats().replies_unknown, 1);
}

#[test]
fn hub_5_unknown_codes_end_their_link_and_reach_no_store() {
    let mut refused = 0;
    for code in 0..=u8::MAX {
        for len in [0, 1, 7, 8, 9, 16, 40, 300] {
            let mut record = vec![code];
            record.resize(1 + len, 0);
            if ToHub::decode(&record).is_ok() {
                continue;
            }
            refused += 1;
            let mut bare = three(HubConfig::default());
            bare.hub.handle_frame(NOW, LINK, &record);
            assert_eq!(writes(&mut bare), [], "{record:?}");
            let (records, closed) = bare.written(LINK);
            assert_eq!(down(&records), Some(DownReason::Protocol), "{record:?}");
            assert!(closed);
            assert_eq!(bare.hub.nodes().count(), 2);
        }
    }
    assert!(refused > 1_500, "{refused}");
}
