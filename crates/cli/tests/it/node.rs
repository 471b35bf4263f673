//! A hub node that is driven by a test and records its events.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use bytes::Bytes;
use crypto::Ring;
use hub::{Addr, ClaimId, MailSeq, Name, Node, NodeCommand, NodeConfig, NodeEvent};
use servicer::{Clock, Dial, StreamApplication, StreamHandle, StreamServicer, TlsIdentity};
use wire::{ClientId, CommandId, ConnectionId, Instant, NodeId, Seed, StreamMachine};

use crate::net::{Net, PATIENCE};

#[derive(Debug)]
pub(crate) enum NodeRequest {
    Mail(ClientId, Bytes),
    Claim(ClientId),
    Acknowledge(ClaimId, MailSeq),
    Call(NodeId, Bytes),
    Subscribe(ClaimId, Name),
}

pub(crate) struct Talker {
    handle: StreamHandle<NodeRequest>,
    incoming: Receiver<NodeEvent>,
}

struct Mouth(Sender<NodeEvent>);

impl Talker {
    pub(crate) fn start(net: &Net, name: &str) -> Self {
        let identity = net.identity(name);
        let instance = crate::server::instance(&mut Ring::new());
        let now = Clock::new().now();
        let seed = Seed([instance.0.to_be_bytes()[0]; 32]);
        let node = Node::new(NodeConfig::default(), &net.join_file(), instance, seed, now);
        let (sender, incoming) = mpsc::channel();
        let handle = StreamServicer::named(name)
            .with_identity(&TlsIdentity::new(&identity).unwrap())
            .spawn(Vec::new(), node.unwrap(), Mouth(sender))
            .unwrap();
        Self { handle, incoming }
    }

    pub(crate) fn tell(&self, what: NodeRequest) {
        self.handle.request(what).unwrap();
    }

    pub(crate) fn next(&self) -> NodeEvent {
        self.incoming.recv_timeout(PATIENCE).unwrap()
    }

    /// The next event, if it arrives within `patience`.
    pub(crate) fn soon(&self, patience: Duration) -> Option<NodeEvent> {
        self.incoming.recv_timeout(patience).ok()
    }

    pub(crate) fn wait_joined(&self) {
        while !matches!(self.next(), NodeEvent::Joined { .. }) {}
    }
}

impl StreamApplication<Node> for Mouth {
    type Request = NodeRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        node: &mut Node,
        what: NodeRequest,
    ) -> ControlFlow<()> {
        match what {
            NodeRequest::Mail(player, body) => {
                node.mail(now, player, body, Duration::ZERO).unwrap();
            }
            NodeRequest::Claim(player) => {
                node.claim(now, player, MailSeq(0), Bytes::new()).unwrap();
            }
            NodeRequest::Acknowledge(claim, upto) => {
                node.acknowledge(now, claim, upto);
            }
            NodeRequest::Subscribe(claim, topic) => {
                assert!(node.subscribe(now, claim, topic));
            }
            NodeRequest::Call(to, body) => {
                // Fails without a link; the caller retries.
                node.call(now, Addr::Node(to), body, Duration::from_secs(5))
                    .ok();
            }
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        if let NodeEvent::Request { ticket, body, .. } = &event {
            node.reply(now, *ticket, Ok(body.0.clone())).unwrap();
        }
        self.0.send(event).ok();
    }

    fn on_command(
        &mut self,
        _now: Instant,
        _node: &mut Node,
        _id: CommandId,
        command: NodeCommand,
    ) -> Option<Dial> {
        let NodeCommand::Dial { hub, address } = command else {
            panic!("{command:?}");
        };
        Some(Dial {
            address: address.parse().unwrap(),
            peer: hub.into(),
        })
    }

    fn on_dialled(
        &mut self,
        now: Instant,
        node: &mut Node,
        id: CommandId,
        result: Result<ConnectionId, servicer::DialError>,
    ) {
        node.handle_completed(now, id, result.map(drop).map_err(|_| hub::DialError));
    }
}
