//! Claims with and without grants, and what a node without a claim can do; signatures are played by
//! the test.

use std::time::Duration;

use bytes::Bytes;
use hub::record::{ClaimRequest, MailVerdict, RevokeReason, ToHub, ToNode};
use hub::store::{Mail, Settled};
use hub::{
    AccessConfig, Addr, ClaimGrant, ClaimNumber, ClaimPolicy, ClaimVerifier, Command, Completed,
    Epoch, GrantTerms, HubConfig, HubEvent, JoinFile, Lease, MailSeq, Redacted, Role, SenderRate,
    SenderSeq, StoreOp,
};
use wire::{ClientId, CloseCause, ConnectionId, NodeId, StreamMachine, UnixTime};

use crate::bare::{Bare, LINK, NEWEST, NOW, OTHER, claim, mail, three};
use crate::world::{join_file, node_id};

/// A key is the id of its node; a signature repeats it.
struct Played;

impl ClaimVerifier for Played {
    fn verify(&self, key: &[u8; 65], _: &[u8], signature: &[u8; 64]) -> Option<NodeId> {
        let id = key[1..33].try_into().unwrap();
        (signature[..32] == key[1..33]).then_some(NodeId(id))
    }
}

const ISSUER: usize = 3;

fn grant(issuer: usize, player: u64, node: usize, secs: u64) -> ClaimGrant {
    let terms = GrantTerms {
        player: ClientId(player),
        node: node_id(node),
        not_after: UnixTime::from_secs(1_700_000_000 + secs),
    };
    let (mut key, mut signature) = ([4; 65], [0; 64]);
    key[1..33].copy_from_slice(&node_id(issuer).0);
    signature[..32].copy_from_slice(&node_id(issuer).0);
    ClaimGrant::new(&terms, &key, &signature)
}

fn granted_claim(player: u64, grant: &ClaimGrant) -> ToHub<'_> {
    let ToHub::Claim(claim) = claim(player) else {
        unreachable!("a claim");
    };
    let grant = grant.as_bytes();
    ToHub::ClaimGranted { claim, grant }
}

/// Three joined nodes; the fourth of the join file issues grants.
fn granting(change: impl FnOnce(&mut AccessConfig)) -> Bare {
    let mut config = HubConfig::default();
    config.access.claims = ClaimPolicy::Granted;
    change(&mut config.access);
    let mut bare = three(config);
    bare.hub.set_claim_verifier(Box::new(Played));
    let mut file: JoinFile = join_file(4);
    for grant in &mut file.grants {
        grant.issues_claims = grant.node == node_id(ISSUER) && grant.role == Role::Matchmaker;
    }
    bare.hub.set_join_file(file);
    bare
}

/// Sends a claim by `link`; returns the reason if it is rejected.
fn send(bare: &mut Bare, link: ConnectionId, record: &ToHub<'_>) -> Option<RevokeReason> {
    bare.send(link, record);
    let (records, _) = bare.written(link);
    let mut answers = records
        .iter()
        .filter_map(|record| match ToNode::decode(record) {
            Ok(ToNode::Granted { .. }) => Some(None),
            Ok(ToNode::Revoked { reason, .. }) => Some(Some(reason)),
            _ => None,
        });
    answers.next_back().expect("each claim is answered")
}

#[test]
fn hub_8_without_a_granted_claim_no_mail_is_read_acknowledged_or_released() {
    let mut bare = granting(|_| ());
    let proved = grant(ISSUER, 7, 0, 60);
    assert_eq!(send(&mut bare, LINK, &granted_claim(7, &proved)), None);
    bare.drain_commands();
    bare.commands.clear();
    assert_eq!(
        send(&mut bare, OTHER, &claim(7)),
        Some(RevokeReason::GrantNeeded)
    );
    let stale = bare.hub.stats().stale;
    let (player, upto) = (ClientId(7), MailSeq(5));
    bare.send(OTHER, &ToHub::MailAck { player, upto });
    let release = ToHub::Release {
        player,
        claim: ClaimNumber(1),
    };
    bare.send(OTHER, &release);
    bare.drain_commands();
    assert!(bare.commands.is_empty(), "neither read nor acknowledged");
    assert_eq!(bare.hub.stats().stale, stale + 2);
    assert_eq!(bare.hub.holder(player), Some(node_id(0)));
}

#[test]
fn hub_8_under_plain_claims_an_acknowledgement_needs_the_claim_too() {
    let mut bare = three(HubConfig::default());
    bare.send(LINK, &claim(7));
    bare.drain_commands();
    bare.commands.clear();
    let (player, upto) = (ClientId(7), MailSeq(5));
    for link in [OTHER, LINK] {
        bare.send(link, &ToHub::MailAck { player, upto });
    }
    bare.drain_commands();
    let acks = bare.commands.iter();
    let acks = acks.filter(|(_, it)| matches!(it, Command::Store(StoreOp::Ack { .. })));
    assert_eq!(acks.count(), 1, "that of the holder");
    assert_eq!(bare.hub.stats().stale, 1);
}

#[test]
fn a_claim_that_was_proved_is_renewed_after_its_end_on_the_same_hub() {
    let mut bare = granting(|_| ());
    let proved = grant(ISSUER, 7, 0, 60);
    assert_eq!(send(&mut bare, LINK, &granted_claim(7, &proved)), None);
    let later = NOW + Duration::from_secs(61);
    bare.hub
        .set_unix_time(later, UnixTime::from_secs(1_700_000_061));
    assert_eq!(
        send(&mut bare, LINK, &granted_claim(8, &grant(ISSUER, 8, 0, 60))),
        Some(RevokeReason::GrantExpired)
    );
    bare.hub.handle_closed(later, LINK, CloseCause::Failed);
    let again = ConnectionId(9);
    bare.drain_commands();
    bare.join(again, 0, 0);
    bare.hub.handle_credit(later, again, 1 << 30);
    assert_eq!(send(&mut bare, again, &granted_claim(7, &proved)), None);
}

#[test]
fn forged_grants_max_bounds_the_signatures_checked_for_one_node() {
    let mut bare = granting(|access| access.forged_grants_max = 3);
    let forged = |player| {
        let mut bytes = *grant(ISSUER, player, 0, 60).as_bytes();
        bytes[114] ^= 1;
        ClaimGrant::parse(&bytes).unwrap()
    };
    for player in 0..10 {
        assert_eq!(
            send(&mut bare, LINK, &granted_claim(player, &forged(player))),
            Some(RevokeReason::GrantInvalid)
        );
    }
    // Nothing is checked for this node now, not even a valid grant; others are not affected.
    let valid = |node| grant(ISSUER, 20, node, 60);
    assert_eq!(
        send(&mut bare, LINK, &granted_claim(20, &valid(0))),
        Some(RevokeReason::GrantInvalid)
    );
    assert_eq!(send(&mut bare, OTHER, &granted_claim(20, &valid(1))), None);
    let later = NOW + Duration::from_secs(1);
    bare.hub.handle_timeout(later);
    assert_eq!(send(&mut bare, LINK, &granted_claim(20, &valid(0))), None);
    assert_eq!(bare.hub.stats().claims_forged, 11);
}

#[test]
fn grants_cached_max_bounds_the_grants_that_are_remembered() {
    let mut bare = granting(|access| access.grants_cached_max = 4);
    let memory = |bare: &mut Bare| {
        for player in 0..20 {
            let proved = grant(ISSUER, player, 0, 60);
            assert_eq!(send(bare, LINK, &granted_claim(player, &proved)), None);
            let release = ToHub::Release {
                player: ClientId(player),
                claim: ClaimNumber(1),
            };
            bare.send(LINK, &release);
        }
        bare.drain_commands();
        bare.hub.memory_bytes()
    };
    let first = memory(&mut bare);
    let mut unbounded = granting(|_| ());
    assert!(memory(&mut unbounded) >= first + 16 * ClaimGrant::LEN);
}

#[test]
fn mails_per_s_and_mail_bytes_per_s_pace_the_nodes_of_a_role() {
    let limited = |mails, bytes| {
        let mut rate = SenderRate::default();
        (rate.mails_per_s, rate.mail_bytes_per_s) = (mails, bytes);
        rate
    };
    for (rate, passed) in [
        (limited(10, u32::MAX), 10),
        (limited(u32::MAX, 100), 5),
        (SenderRate::default(), 50),
    ] {
        let mut config = HubConfig::default();
        config.access.rates.set(Role::GameNode, rate);
        let mut bare = three(config);
        let mut sent = 0;
        for second in 1..=2 {
            for _ in 0..50 {
                sent += 1;
                bare.send(LINK, &mail(sent, &[7; 20]));
            }
            bare.send(OTHER, &mail(second, b"small"));
            bare.drain_commands();
            let mut appended = 0;
            for (_, command) in bare.commands.drain(..) {
                if let Command::Store(StoreOp::Append(mails)) = command {
                    appended += mails.len();
                }
            }
            assert_eq!(appended, passed + 1, "{rate:?} in second {second}");
            let later = NOW + Duration::from_secs(second);
            bare.hub.handle_timeout(later);
        }
        let over = bare.hub.stats().mail_over_rate;
        assert_eq!(over, 100 - 2 * passed as u64);
    }
}

#[test]
fn role_mails_per_s_and_role_mail_bytes_per_s_pace_all_nodes_of_a_role() {
    for (mails, bytes, passed) in [(40, u32::MAX, 40), (u32::MAX, 400, 20)] {
        let mut rate = SenderRate::default();
        (rate.role_mails_per_s, rate.role_mail_bytes_per_s) = (mails, bytes);
        let mut config = HubConfig::default();
        config.access.rates.set(Role::GameNode, rate);
        let mut bare = three(config);
        for seq in 1..=30 {
            bare.send(LINK, &mail(seq, &[7; 20]));
            bare.send(OTHER, &mail(seq, &[7; 20]));
        }
        bare.drain_commands();
        let mut appended = 0;
        for (_, command) in bare.commands.drain(..) {
            if let Command::Store(StoreOp::Append(mails)) = command {
                appended += mails.len();
            }
        }
        assert_eq!(appended, passed, "{rate:?}");
    }
}

#[test]
fn players_taken_over_by_the_thousand_hide_no_other_event() {
    let mut config = HubConfig::default();
    config.events_max = 80;
    let mut bare = three(config);
    while bare.hub.poll_event().is_some() {}
    for turn in 0..500_u64 {
        let link = if turn % 2 == 0 { LINK } else { OTHER };
        bare.send(
            link,
            &ToHub::Claim(ClaimRequest {
                player: ClientId(1),
                claim: ClaimNumber(turn + 1),
                lease: Lease::NONE,
                delivered: MailSeq(0),
                acknowledged: MailSeq(0),
                meta: Redacted(b""),
            }),
        );
    }
    bare.hub.handle_closed(NOW, OTHER, CloseCause::Failed);
    let mut events = Vec::new();
    while let Some(event) = bare.hub.poll_event() {
        events.push(event);
    }
    let taken = |event: &&HubEvent| matches!(event, HubEvent::PlayerTaken { .. });
    assert_eq!(events.iter().filter(taken).count(), 10, "an eighth");
    assert!(matches!(events.last(), Some(HubEvent::NodeDown { .. })));
    assert_eq!(bare.hub.stats().players_taken, 499);
    assert_eq!(bare.hub.stats().events_dropped, 489);
}

/// Answers the hub's reads with `mail`, if it is one, and its acknowledgements; returns the highest
/// number that was acknowledged or skipped.
fn answer(bare: &mut Bare, mut mail: Option<Mail>) -> MailSeq {
    let mut highest = MailSeq(0);
    while let Some((id, command)) = bare.hub.poll_command() {
        let completed = match command {
            Command::Store(StoreOp::Ack { upto, .. }) => {
                highest = highest.max(upto);
                Completed::Acked
            }
            Command::Store(StoreOp::Read { after, .. }) => {
                highest = highest.max(after);
                let mails = mail.take().into_iter().collect();
                Completed::Mails { mails, more: false }
            }
            other => panic!("{other:?}"),
        };
        bare.hub.handle_completed(NOW, id, Ok(completed));
    }
    highest
}

#[test]
fn hub_8_no_claim_acknowledges_or_hides_mail_that_comes_later() {
    let mut bare = three(HubConfig::default());
    let (player, far) = (ClientId(1), MailSeq(u64::MAX));
    let ToHub::Claim(request) = claim(1) else {
        unreachable!("a claim");
    };
    bare.send(
        LINK,
        &ToHub::Claim(ClaimRequest {
            delivered: far,
            acknowledged: far,
            ..request
        }),
    );
    assert_eq!(
        answer(&mut bare, None),
        NEWEST,
        "the newest mail of the log"
    );
    // The mail that comes then is read, and reaches the node.
    let next = MailSeq(NEWEST.0 + 1);
    let mail = Mail {
        seq: next,
        node: node_id(2),
        epoch: Epoch(1),
        sender_seq: SenderSeq(1),
        body: Redacted(Bytes::from_static(b"later")),
    };
    let appended = Settled {
        node: node_id(2),
        epoch: Epoch(1),
        seq: SenderSeq(1),
        to: Addr::Player(player).into(),
        verdict: MailVerdict::Stored,
        part: None,
        dropped: 0,
    };
    bare.send(OTHER, &crate::bare::mail(1, b"later"));
    let (id, _) = bare.hub.poll_command().unwrap();
    let appended = Completed::Appended(vec![appended]);
    bare.hub.handle_completed(NOW, id, Ok(appended));
    answer(&mut bare, Some(mail));
    let (records, _) = bare.written(LINK);
    let is_delivery = |record: &Vec<u8>| matches!(ToNode::decode(record), Ok(ToNode::Deliver(delivery)) if delivery.seq == next);
    assert_eq!(
        records.iter().filter(|record| is_delivery(record)).count(),
        1
    );
    bare.send(LINK, &ToHub::MailAck { player, upto: far });
    let release = ToHub::Release {
        player,
        claim: request.claim,
    };
    bare.send(LINK, &release);
    assert_eq!(answer(&mut bare, None), next);
}
