//! A hub alone: the test plays its store and its network.

use std::time::Duration;

use hub::kv::Revision;
use hub::record::{ClaimRequest, DownReason, Join, MailSubmission, ToHub, ToNode, VERSION};
use hub::{
    Addr, BatchSeq, ClaimNumber, Command, Completed, Epoch, Hub, HubConfig, KvOp, KvOutcome, Lease,
    LogId, MailSeq, Redacted, Role, SenderSeq, StoreOp,
};
use wire::{
    ClientId, CommandId, ConnectionId, InstanceId, Instant, PeerIdentity, StreamMachine, UnixTime,
};

use crate::world::{join_file, node_id};

pub(crate) const NOW: Instant = Instant::from_millis(1);
pub(crate) const LINK: ConnectionId = ConnectionId(1);
pub(crate) const OTHER: ConnectionId = ConnectionId(2);
pub(crate) const THIRD: ConnectionId = ConnectionId(3);

/// The last mail in the log.
pub(crate) const NEWEST: MailSeq = MailSeq(1_000_000);

/// A hub without store or network: the test plays both.
pub(crate) struct Bare {
    pub(crate) hub: Hub,
    pub(crate) commands: Vec<(CommandId, Command)>,
}

impl Bare {
    pub(crate) fn new(config: HubConfig) -> Self {
        let mut hub = Hub::new(config, join_file(4), NOW);
        hub.set_unix_time(NOW, UnixTime::from_secs(1_700_000_000));
        Self {
            hub,
            commands: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, link: ConnectionId, record: &ToHub<'_>) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        self.hub.handle_frame(NOW, link, &bytes);
    }

    pub(crate) fn join(&mut self, link: ConnectionId, index: usize, watch: u8) {
        let identity = PeerIdentity::Node(node_id(index));
        self.hub.handle_opened(NOW, link, &identity);
        self.send(
            link,
            &ToHub::Join(Join {
                version: VERSION,
                role: Role::GameNode,
                instance: InstanceId(1),
                epoch: Epoch(0),
                watch,
                services: Vec::new(),
            }),
        );
        let (id, command) = self.hub.poll_command().unwrap();
        assert!(matches!(command, Command::Store(StoreOp::Join { .. })));
        let joined = Completed::Joined {
            epoch: Epoch(1),
            boot: 1,
            log: LogId(7),
            newest: UnixTime::default(),
            ran: Duration::ZERO,
            last_mail: NEWEST,
            mail_mark: SenderSeq(0),
            count_mark: BatchSeq(0),
        };
        self.hub.handle_completed(NOW, id, Ok(joined));
        self.load_keys();
    }

    /// Answers the hub's first read of the durable keys: there are none.
    fn load_keys(&mut self) {
        self.drain_commands();
        let commands = std::mem::take(&mut self.commands);
        for (id, command) in commands {
            if matches!(command, Command::Store(StoreOp::Kv(KvOp::Load { .. }))) {
                let loaded = KvOutcome::Loaded {
                    entries: Vec::new(),
                    more: false,
                    revision: Revision::durable(1),
                };
                self.hub
                    .handle_completed(NOW, id, Ok(Completed::Kv(loaded)));
            } else {
                self.commands.push((id, command));
            }
        }
    }

    /// Everything that the hub writes to `link`, and whether it closes it.
    pub(crate) fn written(&mut self, link: ConnectionId) -> (Vec<Vec<u8>>, bool) {
        let mut records = Vec::new();
        let mut closed = false;
        let mut buf = Vec::new();
        while let Some(outbound) = self.hub.poll_outbound(NOW, &mut buf) {
            if outbound.connection == link {
                records.push(buf.clone());
                closed |= outbound.close;
            }
            buf.clear();
        }
        (records, closed)
    }

    pub(crate) fn drain_commands(&mut self) {
        while let Some(command) = self.hub.poll_command() {
            self.commands.push(command);
        }
    }
}

pub(crate) fn mail(seq: u64, body: &[u8]) -> ToHub<'_> {
    ToHub::Mail(MailSubmission {
        seq: SenderSeq(seq),
        settled: SenderSeq(0),
        ttl_s: 0,
        to: Addr::Player(ClientId(1)),
        body: Redacted(body),
    })
}

pub(crate) fn down(records: &[Vec<u8>]) -> Option<DownReason> {
    match ToNode::decode(records.last()?) {
        Ok(ToNode::Down(reason)) => Some(reason),
        _ => None,
    }
}

pub(crate) fn claim(player: u64) -> ToHub<'static> {
    ToHub::Claim(ClaimRequest {
        player: ClientId(player),
        claim: ClaimNumber(1),
        lease: Lease::NONE,
        delivered: MailSeq(0),
        acknowledged: MailSeq(0),
        meta: Redacted(b""),
    })
}

/// A hub with three joined nodes and ample credit.
pub(crate) fn three(config: HubConfig) -> Bare {
    let mut bare = Bare::new(config);
    for (index, link) in [LINK, OTHER, THIRD].into_iter().enumerate() {
        bare.join(link, index, 0);
        bare.hub.handle_credit(NOW, link, 1 << 30);
    }
    bare.written(LINK);
    bare
}
