//! Each time and limit of the configurations, at its boundary.

use std::time::Duration;

use bytes::Bytes;
use hub::record::{CallRequest, DownReason, Join, MailVerdict, RECORD_BYTES_MAX, ToHub, ToNode};
use hub::{
    Addr, BatchSeq, CallId, Command, DialError, Epoch, HubConfig, LogId, MailSeq, Name, Node,
    NodeConfig, NodeEvent, Redacted, SenderSeq, StoreOp,
};
use wire::{
    ClientId, CommandId, ConnectionId, InstanceId, Instant, PeerIdentity, Seed, StreamMachine,
    UnixTime,
};

use crate::bare::{Bare, LINK, NOW, OTHER, claim, down, mail};
use crate::world::{HUB, join_file, node_id};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Runs every deadline up to `end`, one at a time.
fn run(machine: &mut impl StreamMachine, end: Instant) {
    while let Some(at) = machine.poll_timeout().filter(|at| *at <= end) {
        machine.handle_timeout(at);
    }
}

#[test]
fn call_timeout_max_caps_the_timeout_of_a_call() {
    let mut config = HubConfig::default();
    config.call_timeout_max = ms(700);
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.join(OTHER, 1, 0);
    for link in [LINK, OTHER] {
        bare.hub.handle_credit(NOW, link, 1_000);
    }
    let call = ToHub::Call(CallRequest {
        call: CallId(1),
        timeout_ms: u32::MAX,
        to: Addr::Node(node_id(1)),
        body: Redacted(b""),
    });
    bare.send(LINK, &call);
    let (records, _) = bare.written(OTHER);
    let Ok(ToNode::Request(request)) = ToNode::decode(records.last().unwrap()) else {
        panic!("{records:?}");
    };
    assert_eq!(request.timeout_ms, 700, "the one asked knows");
    run(&mut bare.hub, NOW + ms(699));
    assert_eq!(bare.hub.stats().calls_failed, 0);
    run(&mut bare.hub, NOW + ms(700));
    assert_eq!(bare.hub.stats().calls_failed, 1);
}

#[test]
fn join_timeout_ends_links_without_join_and_silence_max_silent_links() {
    let mut config = HubConfig::default();
    config.join_timeout = ms(1_000);
    config.silence_max = ms(3_000);
    config.links_max = 10;
    let mut bare = Bare::new(config);
    let identity = PeerIdentity::Node(node_id(0));
    bare.hub.handle_opened(NOW, LINK, &identity);
    bare.hub.handle_credit(NOW, LINK, 100);
    bare.join(OTHER, 1, 0);
    bare.hub.handle_credit(NOW, OTHER, 100);
    run(&mut bare.hub, NOW + ms(999));
    assert!(!bare.written(LINK).1);
    // Measured in steps of a quarter of a second.
    run(&mut bare.hub, NOW + ms(1_250));
    let (records, closed) = bare.written(LINK);
    assert_eq!((down(&records), closed), (Some(DownReason::Silent), true));
    run(&mut bare.hub, NOW + ms(2_999));
    assert_eq!(bare.hub.nodes().count(), 1);
    run(&mut bare.hub, NOW + ms(3_250));
    assert_eq!(bare.hub.nodes().count(), 0);
}

#[test]
fn mail_ttl_is_the_default_and_the_maximum() {
    let mut config = HubConfig::default();
    config.mail_ttl = Duration::from_secs(100);
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    for (seq, (asked, given)) in (1..).zip([(0, 100), (7, 7), (100, 100), (u32::MAX, 100)]) {
        let ToHub::Mail(mut mail) = mail(seq, b"") else {
            unreachable!()
        };
        mail.ttl_s = asked;
        bare.send(LINK, &ToHub::Mail(mail));
        let (_, Command::Store(StoreOp::Append(mails))) = bare.hub.poll_command().unwrap() else {
            panic!("no mail")
        };
        assert_eq!(mails[0].expires, UnixTime::from_secs(1_700_000_000 + given));
    }
}

#[test]
fn retry_after_is_returned_to_a_refused_sender() {
    let mut config = HubConfig::default();
    config.retry_after = ms(1_234);
    config.store_bytes_in_flight = 0;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.hub.handle_credit(NOW, LINK, 1_000);
    bare.written(LINK);
    bare.send(LINK, &mail(1, b""));
    let (records, _) = bare.written(LINK);
    let busy = ToNode::MailSettled {
        first: SenderSeq(1),
        last: SenderSeq(1),
        verdict: MailVerdict::Busy,
        retry_ms: 1_234,
    };
    assert_eq!(ToNode::decode(&records[0]), Ok(busy));
}

#[test]
fn watch_changes_max_bounds_the_queue_of_a_watcher() {
    let mut config = HubConfig::default();
    config.watch_changes_max = 10;
    let mut bare = Bare::new(config);
    bare.join(LINK, 0, 0);
    bare.hub.handle_credit(NOW, LINK, 10 << 20);
    bare.join(OTHER, 1, Join::WATCH_PLAYERS);
    bare.hub.handle_credit(NOW, OTHER, 1_000);
    let (records, _) = bare.written(OTHER);
    assert_eq!(records.len(), 3, "joined, reset, complete");
    let spent: usize = records.iter().map(Vec::len).sum();
    // From here on it has no credit for a presence update.
    let topic = Name::new("news").unwrap();
    let body = vec![0; 1_000 - spent - 38];
    bare.send(
        LINK,
        &ToHub::Broadcast {
            topic,
            body: Redacted(&body),
        },
    );
    assert_eq!(bare.written(OTHER).0.len(), 1);
    for player in 0..10 {
        bare.send(LINK, &claim(player));
    }
    let few = bare.hub.memory_bytes();
    for player in 10..1_000 {
        bare.send(LINK, &claim(player));
    }
    bare.written(LINK);
    let each = (bare.hub.memory_bytes() - few) / 990;
    assert!(each < 500, "{each} bytes for each player are its claim's");
    bare.hub.handle_credit(NOW, OTHER, 1 << 20);
    let reported: Vec<_> = bare.written(OTHER).0;
    let resets = reported
        .iter()
        .filter(|record| matches!(ToNode::decode(record), Ok(ToNode::PresenceReset)));
    assert_eq!(resets.count(), 1, "it starts over");
    assert!(reported.len() > 1_000, "and hears of all");
}

/// A node and its driver, in virtual time.
struct SingleNode {
    node: Node,
    now: Instant,
}

impl SingleNode {
    fn new(config: NodeConfig) -> Self {
        let file = join_file(1);
        let node = Node::new(config, &file, InstanceId(1), Seed([1; 32]), NOW).unwrap();
        Self { node, now: NOW }
    }

    /// Advances to the next deadline.
    fn step(&mut self) -> Instant {
        self.now = self.node.poll_timeout().unwrap().max(self.now);
        self.node.handle_timeout(self.now);
        self.now
    }

    fn dialled(&mut self) -> (Instant, CommandId) {
        for _ in 0..100 {
            if let Some((id, _)) = self.node.poll_command() {
                return (self.now, id);
            }
            self.step();
        }
        panic!("it does not dial");
    }

    fn receive(&mut self, link: ConnectionId, record: &ToNode<'_>) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        self.node.handle_frame(self.now, link, &bytes);
    }

    fn joined(&mut self, link: ConnectionId) {
        self.node
            .handle_opened(self.now, link, &PeerIdentity::Node(HUB));
        self.node.handle_credit(self.now, link, 1 << 20);
        let record = ToNode::Joined {
            epoch: Epoch(1),
            boot: 1,
            log: LogId(7),
            mail_mark: SenderSeq(0),
            count_mark: BatchSeq(0),
        };
        self.receive(link, &record);
        assert!(self.node.is_joined());
    }

    fn written(&mut self) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        let mut buf = Vec::new();
        while self.node.poll_outbound(self.now, &mut buf).is_some() {
            records.push(std::mem::take(&mut buf));
        }
        records
    }
}

#[test]
fn heartbeat_and_silence_max_keep_and_end_the_link_of_a_node() {
    let mut config = NodeConfig::default();
    config.heartbeat = ms(400);
    config.silence_max = ms(1_000);
    let mut node = SingleNode::new(config);
    node.dialled();
    node.joined(LINK);
    node.written();
    let start = node.now;
    for beat in 1..=5 {
        assert_eq!(node.step(), start + ms(400) * beat);
        let records = node.written();
        assert_eq!(ToHub::decode(&records[0]), Ok(ToHub::Heartbeat));
        node.receive(LINK, &ToNode::Heartbeat);
    }
    let received = node.now;
    while node.node.is_joined() {
        node.step();
    }
    assert_eq!(node.now, received + ms(1_000));
}

#[test]
fn silence_max_requires_no_more_of_a_link_than_documented() {
    // The silence timeout ends with a record's last byte, and the previous record may have arrived
    // just before.
    let rate = |silence: Duration| RECORD_BYTES_MAX / usize::try_from(silence.as_secs()).unwrap();
    assert!(rate(NodeConfig::default().silence_max) <= 22 << 10);
    assert!(rate(HubConfig::default().silence_max) <= 13 << 10);
}

#[test]
fn hub_5_a_refused_sender_probes_with_one_mail_and_backs_off() {
    const MAILS: u64 = 100;
    let mut node = SingleNode::new(NodeConfig::default());
    node.dialled();
    node.joined(LINK);
    for _ in 0..MAILS {
        node.node
            .mail(node.now, ClientId(1), Bytes::new(), Duration::ZERO)
            .unwrap();
    }
    let settled = |last, verdict| ToNode::MailSettled {
        first: SenderSeq(1),
        last: SenderSeq(last),
        verdict,
        retry_ms: 100,
    };
    let mails = |records: Vec<Vec<u8>>| {
        let is_mail = |record: &&Vec<u8>| matches!(ToHub::decode(record), Ok(ToHub::Mail(_)));
        records.iter().filter(is_mail).count() as u64
    };
    assert_eq!(mails(node.written()), MAILS);
    // One batch, which the hub acknowledges in parts.
    for last in [3, 50, MAILS] {
        node.receive(LINK, &settled(last, MailVerdict::Busy));
    }
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let refused = node.now;
        let mut sent = 0;
        while sent == 0 {
            node.step();
            node.receive(LINK, &ToNode::Heartbeat);
            sent = mails(node.written());
        }
        assert_eq!(sent, 1, "alone");
        pauses.push(node.now.saturating_since(refused));
        node.receive(LINK, &settled(1, MailVerdict::Busy));
    }
    let mut least = ms(100);
    for pause in &pauses {
        assert!((least..=least + least / 2).contains(pause), "{pauses:?}");
        least = (least * 2).min(Duration::from_secs(5));
    }
    let rest = pauses.last().unwrap();
    assert!(*rest >= Duration::from_secs(5));
    while mails(node.written()) == 0 {
        node.step();
        node.receive(LINK, &ToNode::Heartbeat);
    }
    node.receive(LINK, &settled(1, MailVerdict::Stored));
    assert_eq!(mails(node.written()), MAILS - 1, "all at once again");
    node.receive(LINK, &settled(MAILS, MailVerdict::Busy));
    let refused = node.now;
    while mails(node.written()) == 0 {
        node.step();
    }
    assert!(
        node.now.saturating_since(refused) <= ms(150),
        "and the pause is short again"
    );
}

#[test]
fn redial_min_redial_max_and_dial_timeout_space_the_dials() {
    let mut config = NodeConfig::default();
    config.redial_min = ms(100);
    config.redial_max = ms(800);
    config.dial_timeout = ms(3_000);
    let mut node = SingleNode::new(config);
    let (mut before, mut id) = node.dialled();
    assert_eq!(before, NOW, "at once");
    for most in [100, 200, 400, 800, 800, 800] {
        node.node.handle_completed(node.now, id, Err(DialError));
        let (at, next) = node.dialled();
        let wait = at.saturating_since(before);
        assert!(
            wait >= ms(most / 2) && wait <= ms(most),
            "{wait:?} of {most}"
        );
        (before, id) = (at, next);
    }
    // A dial that never completes is abandoned, and so is a join without an answer.
    let (at, _) = node.dialled();
    let wait = at.saturating_since(before);
    assert!(wait >= ms(3_400) && wait <= ms(3_800), "{wait:?}");
    node.node
        .handle_opened(node.now, LINK, &PeerIdentity::Node(HUB));
    let (again, _) = node.dialled();
    let wait = again.saturating_since(at);
    assert!(wait >= ms(3_400) && wait <= ms(3_800), "{wait:?}");
}

#[test]
fn refused_wait_spaces_the_dials_of_a_rejected_node() {
    let mut config = NodeConfig::default();
    config.refused_wait = ms(20_000);
    let mut node = SingleNode::new(config);
    node.dialled();
    node.node
        .handle_opened(node.now, LINK, &PeerIdentity::Node(HUB));
    let refused = node.now;
    node.receive(LINK, &ToNode::Down(DownReason::NotListed));
    let (at, _) = node.dialled();
    let wait = at.saturating_since(refused);
    assert!(wait >= ms(10_000) && wait <= ms(20_000), "{wait:?}");
}

#[test]
fn counts_interval_spaces_batches_and_a_key_costs_one_entry() {
    let mut config = NodeConfig::default();
    config.counts_interval = ms(2_000);
    config.heartbeat = Duration::from_secs(100);
    config.silence_max = Duration::from_secs(100);
    let mut node = SingleNode::new(config);
    node.dialled();
    node.joined(LINK);
    node.written();
    for _ in 0..1_000 {
        node.node.count(Name::new("kills").unwrap().into(), 2);
    }
    assert!(node.written().is_empty(), "not before its time");
    assert_eq!(node.step(), NOW + ms(2_000));
    let records = node.written();
    assert_eq!(records.len(), 1);
    let Ok(ToHub::Counts { entries, .. }) = ToHub::decode(&records[0]) else {
        panic!("{records:?}");
    };
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].1, 2_000);
}

#[test]
fn watch_nodes_and_watch_players_select_the_subscription() {
    for (watch_nodes, watch_players) in [(false, false), (true, false), (false, true)] {
        let mut config = NodeConfig::default();
        config.watch_nodes = watch_nodes;
        config.watch_players = watch_players;
        let mut node = SingleNode::new(config);
        node.dialled();
        node.node
            .handle_opened(node.now, LINK, &PeerIdentity::Node(HUB));
        node.node.handle_credit(node.now, LINK, 1_000);
        let records = node.written();
        let Ok(ToHub::Join(join)) = ToHub::decode(&records[0]) else {
            panic!("{records:?}");
        };
        let mut bare = Bare::new(HubConfig::default());
        bare.join(OTHER, 1, join.watch);
        bare.hub.handle_credit(NOW, OTHER, 10_000);
        bare.join(LINK, 0, 0);
        bare.send(LINK, &claim(1));
        let (records, _) = bare.written(OTHER);
        let is_reported = |wanted: fn(&ToNode<'_>) -> bool| {
            records
                .iter()
                .any(|record| ToNode::decode(record).is_ok_and(|record| wanted(&record)))
        };
        let nodes = is_reported(|record| matches!(record, ToNode::PresenceNode { .. }));
        let players = is_reported(|record| matches!(record, ToNode::PresencePlayer { .. }));
        assert_eq!((nodes, players), (watch_nodes, watch_players));
    }
}

#[test]
fn hub_6_mail_accepted_before_a_hub_failure_stays_in_its_senders_queue() {
    let mut config = NodeConfig::default();
    config.mails_max = 3;
    let mut node = SingleNode::new(config);
    for seq in 1..=3 {
        let sent = node
            .node
            .mail(NOW, ClientId(1), Bytes::new(), Duration::ZERO);
        assert_eq!(sent, Ok(SenderSeq(seq)));
    }
    let full = node
        .node
        .mail(NOW, ClientId(1), Bytes::new(), Duration::ZERO);
    assert!(full.is_err());
    node.dialled();
    for link in 1..=5 {
        let link = ConnectionId(link);
        node.joined(link);
        let mails = node
            .written()
            .into_iter()
            .filter(|record| matches!(ToHub::decode(record), Ok(ToHub::Mail(_))));
        assert_eq!(mails.count(), 3, "all again over each link");
        node.node
            .handle_closed(node.now, link, wire::CloseCause::Failed);
        node.dialled();
    }
    assert!(
        node.node
            .claim(node.now, ClientId(1), MailSeq(0), Bytes::new())
            .is_ok()
    );
    let reported: Vec<_> = std::iter::from_fn(|| node.node.poll_event()).collect();
    let downs = reported
        .iter()
        .filter(|event| **event == NodeEvent::HubDown);
    assert_eq!(downs.count(), 5);
}
