//! A hub and its nodes, each on a servicer of its own, with the hub's store on a thread and on
//! disk.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use hub::join_file::{Grant, NetworkSecret};
use hub::log::FileSegments;
use hub::{
    Command, Hub, HubConfig, HubEvent, JoinFile, LogId, Node, NodeCommand, NodeConfig, NodeEvent,
    Outcome, Role, Store, StoreConfig, StoreError,
};
use servicer::{
    Admission, Clock, Dial, DialError, End, Jobs, RequestError, StorageConfig, StorageThread,
    StreamApplication, StreamHandle, StreamListener, StreamServicer, TlsIdentity,
};
use wire::{
    ClientId, CommandId, ConnectionId, InstanceId, Instant, NodeId, Seed, StreamMachine as _,
};

use crate::harness::{TIMEOUT, identity};

/// Submits a hub's commands to the storage thread.
struct Submitter {
    jobs: Jobs<(CommandId, Command)>,
    events: Sender<HubEvent>,
}

impl StreamApplication<Hub> for Submitter {
    /// A batch completed by the storage thread.
    type Request = Vec<(CommandId, Outcome)>;

    fn apply_request(
        &mut self,
        now: Instant,
        hub: &mut Hub,
        outcomes: Self::Request,
    ) -> ControlFlow<()> {
        for (id, outcome) in outcomes {
            hub.handle_completed(now, id, outcome);
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Hub, event: HubEvent) {
        drop(self.events.send(event));
    }

    fn on_command(
        &mut self,
        now: Instant,
        hub: &mut Hub,
        id: CommandId,
        command: Command,
    ) -> Option<Dial> {
        if let Err(error) = self.jobs.submit((id, command)) {
            let outcome = match error {
                RequestError::Full(_) => StoreError::Busy,
                RequestError::Ended(_) => StoreError::Failed,
            };
            hub.handle_completed(now, id, Err(outcome));
        }
        None
    }
}

/// Dials as a node requests, and reports its events.
struct Member(Sender<NodeEvent>);

enum HarnessRequest {
    Mail(ClientId, &'static [u8]),
    Claim(ClientId),
}

impl StreamApplication<Node> for Member {
    type Request = HarnessRequest;

    fn apply_request(
        &mut self,
        now: Instant,
        node: &mut Node,
        ask: HarnessRequest,
    ) -> ControlFlow<()> {
        match ask {
            HarnessRequest::Mail(player, body) => {
                let ttl = Duration::from_secs(3_600);
                node.mail(now, player, body.into(), ttl).unwrap();
            }
            HarnessRequest::Claim(player) => {
                let nothing = hub::MailSeq(0);
                node.claim(now, player, nothing, b"".as_slice().into())
                    .unwrap();
            }
        }
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, _: Instant, _: &mut Node, event: NodeEvent) {
        drop(self.0.send(event));
    }

    fn on_command(
        &mut self,
        _: Instant,
        _: &mut Node,
        _: CommandId,
        command: NodeCommand,
    ) -> Option<Dial> {
        let NodeCommand::Dial { hub, address } = command else {
            return None;
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
        result: Result<ConnectionId, DialError>,
    ) {
        let outcome = result.map(drop).map_err(|_| hub::DialError);
        node.handle_completed(now, id, outcome);
    }
}

/// A hub with its storage thread.
struct Switch {
    handle: StreamHandle<Vec<(CommandId, Outcome)>>,
    storage: StorageThread,
    events: Receiver<HubEvent>,
}

impl Switch {
    fn start(
        address: SocketAddr,
        identity: &TlsIdentity,
        folder: &Path,
        nodes: &[NodeId],
    ) -> (Self, SocketAddr) {
        let listener = StreamListener::bind(address, identity, Admission::AnyNode).unwrap();
        let address = listener.local_address();
        let join_file = join_file(identity.node_id(), address, nodes);
        let files = FileSegments::open(folder).unwrap();
        let store = Store::open(files, StoreConfig::default(), LogId(1));
        let (jobs, queue) = Jobs::new(StorageConfig::default());
        let (sender, events) = crossbeam_channel::unbounded();
        let application = Submitter {
            jobs,
            events: sender,
        };
        let machine = Hub::new(HubConfig::default(), join_file, Clock::new().now());
        let handle = StreamServicer::named("hub")
            .spawn(vec![listener], machine, application)
            .unwrap();
        let requests = handle.requests();
        let storage =
            StorageThread::spawn("hub-store", queue, store.unwrap(), requests, |batch| batch)
                .unwrap();
        let switch = Self {
            handle,
            storage,
            events,
        };
        (switch, address)
    }

    fn stop(self) {
        assert_eq!(self.handle.shutdown(TIMEOUT).end, End::Drained);
        assert_eq!(self.storage.shutdown(TIMEOUT).end, End::Drained);
    }
}

/// A node and its events.
struct Player {
    handle: StreamHandle<HarnessRequest>,
    events: Receiver<NodeEvent>,
}

impl Player {
    fn start(identity: &TlsIdentity, join_file: &JoinFile, instance: u64) -> Self {
        let now = Clock::new().now();
        let seed = Seed([7; 32]);
        let config = NodeConfig::default();
        let node = Node::new(config, join_file, InstanceId(instance), seed, now).unwrap();
        let (sender, events) = crossbeam_channel::unbounded();
        let handle = StreamServicer::named("node")
            .with_identity(identity)
            .spawn(Vec::new(), node, Member(sender))
            .unwrap();
        Self { handle, events }
    }

    /// Waits for the next event that `what` accepts.
    fn wait<T>(&self, what: impl Fn(NodeEvent) -> Option<T>) -> T {
        loop {
            if let Some(found) = what(self.events.recv_timeout(TIMEOUT).unwrap()) {
                return found;
            }
        }
    }

    fn wait_joined(&self) {
        self.wait(|event| matches!(event, NodeEvent::Joined { .. }).then_some(()));
    }
}

/// A directory, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tickwire-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn join_file(hub: NodeId, address: SocketAddr, nodes: &[NodeId]) -> JoinFile {
    let mut file = JoinFile::new(NetworkSecret::new([3; 32]));
    file.grants
        .push(Grant::new(Role::Hub, hub).with_address(&address.to_string()));
    for node in nodes {
        file.grants.push(Grant::new(Role::GameNode, *node));
    }
    file
}

#[test]
fn mail_survives_the_hub_and_reaches_the_node_that_claims_its_player() {
    let folder = Folder::new("hub");
    let (hub, one, other) = (identity(), identity(), identity());
    let nodes = [one.node_id(), other.node_id()];
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (switch, address) = Switch::start(any, &hub, &folder.0, &nodes);
    let file = join_file(hub.node_id(), address, &nodes);
    let sender = Player::start(&one, &file, 1);
    sender.wait_joined();
    assert!(matches!(
        switch.events.recv_timeout(TIMEOUT),
        Ok(HubEvent::NodeUp { node, .. }) if node == one.node_id()
    ));
    let player = ClientId(77);
    sender
        .handle
        .request(HarnessRequest::Mail(player, b"kept"))
        .ok()
        .unwrap();
    sender.wait(|event| matches!(event, NodeEvent::MailStored(_)).then_some(()));
    assert!(switch.storage.counters().batches > 0);

    // The hub restarts with the data on disk; the node redials by itself.
    switch.stop();
    sender.wait(|event| matches!(event, NodeEvent::HubDown).then_some(()));
    let (switch, _) = Switch::start(address, &hub, &folder.0, &nodes);
    sender.wait_joined();

    let receiver = Player::start(&other, &file, 2);
    receiver.wait_joined();
    receiver
        .handle
        .request(HarnessRequest::Claim(player))
        .ok()
        .unwrap();
    let (from, body) = receiver.wait(|event| {
        let NodeEvent::Mail { from, body, .. } = event else {
            return None;
        };
        Some((from, body))
    });
    assert_eq!((from, &body[..]), (one.node_id(), &b"kept"[..]));
    switch.stop();
}

#[test]
fn an_unlisted_node_is_refused_by_the_machine() {
    let folder = Folder::new("hub-list");
    let (hub, raw_client) = (identity(), identity());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (switch, address) = Switch::start(any, &hub, &folder.0, &[]);
    let file = join_file(hub.node_id(), address, &[]);
    let player = Player::start(&raw_client, &file, 1);
    player.wait(|event| matches!(event, NodeEvent::Refused(_)).then_some(()));
    assert!(matches!(
        switch.events.recv_timeout(TIMEOUT),
        Ok(HubEvent::Refused { node: Some(node), .. }) if node == raw_client.node_id()
    ));
    switch.stop();
}
