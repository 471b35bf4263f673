//! Clients of a hub that are no game servers, while the hub is killed and starts again.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use bytes::Bytes;
use crypto::Ring;
use hub::kv::{KvKey, KvPrefix, KvPut, Revision};
use hub::{Addr, KvAnswer, NodeEvent, Redacted};
use servicer::HubNode;
use tickwire::hub_client::{
    AsyncHubClient, HubClient, HubClientConfig, HubClientError, HubClientEvent, HubOutcome,
    HubRequestId, NotSent, TryError,
};
use wire::ClientId;

use crate::net::{Net, PATIENCE, until};
use crate::node::{NodeRequest, Talker};

const PLAYER: ClientId = ClientId(9);

fn with_node<T>(net: &Net, name: &str, connect: impl FnOnce(HubNode<'_>) -> T) -> T {
    let (identity, join_file) = (net.identity(name), net.join_file());
    connect(HubNode {
        identity: &identity,
        join_file: &join_file,
        instance: crate::server::instance(&mut Ring::new()),
    })
}

fn sync_client(net: &Net, config: HubClientConfig) -> HubClient {
    with_node(net, "server-0", |node| HubClient::connect(node, config)).unwrap()
}

fn async_client(net: &Net, name: &str) -> AsyncHubClient {
    let config = HubClientConfig::default();
    with_node(net, name, |node| AsyncHubClient::connect(node, config)).unwrap()
}

/// The outcomes of requests, and all other events.
#[derive(Default)]
struct Seen {
    outcomes: BTreeMap<HubRequestId, HubOutcome>,
    others: Vec<HubClientEvent>,
}

impl Seen {
    fn poll(&mut self, client: &mut HubClient) {
        let mut events = Vec::new();
        client.poll_events(&mut events, 16);
        assert!(events.len() <= 16);
        for event in events {
            if let HubClientEvent::Done { request, outcome } = event {
                assert_eq!(
                    self.outcomes.insert(request, outcome),
                    None,
                    "one outcome each"
                );
            } else {
                self.others.push(event);
            }
        }
    }

    fn outcome(&mut self, client: &mut HubClient, request: HubRequestId) -> HubOutcome {
        until("the request has an outcome", || {
            self.poll(client);
            self.outcomes.get(&request).cloned()
        })
    }
}

/// Mails in the mailbox of [`PLAYER`], as their holder gets them.
fn received(net: &Net, count: u8) -> Vec<Bytes> {
    let holder = Talker::start(net, "server-2");
    holder.wait_joined();
    holder.tell(NodeRequest::Claim(PLAYER));
    let mut bodies = Vec::new();
    while bodies.len() < usize::from(count) {
        if let NodeEvent::Mail { body, .. } = holder.next() {
            bodies.push(body.0);
        }
    }
    assert_eq!(
        std::iter::from_fn(|| holder.soon(Duration::from_millis(300)))
            .filter(|event| matches!(event, NodeEvent::Mail { .. }))
            .count(),
        0,
        "no mail twice"
    );
    bodies
}

#[test]
fn ha10_mails_of_a_polled_client_are_stored_once_while_the_hub_is_killed() {
    const COUNT: u8 = 60;
    let mut net = Net::new();
    let mut hub = net.hub_process();
    let mut client = sync_client(&net, HubClientConfig::default());
    let mut seen = Seen::default();
    let mut sent = Vec::new();
    for number in 0..COUNT {
        let mail = client.try_mail(PLAYER, vec![number], Duration::ZERO);
        sent.push(mail.unwrap());
        seen.poll(&mut client);
        if number % 20 == 10 {
            until("one of them is stored", || {
                seen.poll(&mut client);
                seen.outcomes.contains_key(sent.last()?).then_some(())
            });
            hub.kill();
            hub = net.hub_process();
        }
    }
    for request in sent {
        let outcome = seen.outcome(&mut client, request);
        assert_eq!(outcome, HubOutcome::Mail(Ok(())));
    }
    assert!(client.is_up());
    assert!(
        seen.others.contains(&HubClientEvent::Down),
        "{:?}",
        seen.others
    );
    let expected: Vec<Bytes> = (0..COUNT).map(|number| vec![number].into()).collect();
    assert_eq!(received(&net, COUNT), expected);
    client.shutdown(PATIENCE);
    hub.kill();
}

#[test]
fn ha10_a_polled_client_calls_and_watches_keys_over_a_restart_of_the_hub() {
    let mut net = Net::new();
    let hub = net.hub_process();
    let mut client = sync_client(&net, HubClientConfig::default());
    let mut seen = Seen::default();
    let echo = Talker::start(&net, "server-1");
    echo.wait_joined();
    until("the client is up", || {
        seen.poll(&mut client);
        client.is_up().then_some(())
    });
    let to = Addr::Node(net.identity("server-1").node_id());
    let call = client.try_call(to, "hello", PATIENCE).unwrap();
    let reply = Redacted(Bytes::from_static(b"hello"));
    assert_eq!(
        seen.outcome(&mut client, call),
        HubOutcome::Reply(Ok(reply))
    );
    let watch = client
        .try_watch(KvPrefix::new("zone/").unwrap(), Revision::NONE)
        .unwrap();
    let key = KvKey::new("zone/7").unwrap();
    let put = client.try_put(KvPut::new(key.clone(), "one")).unwrap();
    let HubOutcome::Key(Ok(KvAnswer::Written { .. })) = seen.outcome(&mut client, put) else {
        panic!("{:?}", seen.outcomes);
    };
    hub.kill();
    let hub = net.hub_process();
    let written = until("the key is written after the restart", || {
        let put = client.try_put(KvPut::new(key.clone(), "two")).unwrap();
        if let HubOutcome::Key(Ok(KvAnswer::Written { revision, .. })) =
            seen.outcome(&mut client, put)
        {
            Some(revision)
        } else {
            None
        }
    });
    until("the watch has reported it", || {
        seen.poll(&mut client);
        let mut changes = seen.others.iter();
        let is_it = |event: &HubClientEvent| {
            if let HubClientEvent::KeyChanged { watch: of, change } = event {
                *of == watch && change.revision == written
            } else {
                false
            }
        };
        changes.any(is_it).then_some(())
    });
    let too_long = client.try_forward(PLAYER, vec![0; 65_537]).unwrap();
    assert_eq!(
        seen.outcome(&mut client, too_long),
        HubOutcome::NotSent(NotSent::TooLong)
    );
    client.shutdown(PATIENCE);
    hub.kill();
}

#[test]
fn ha10_requests_max_is_a_limit_until_outcomes_are_taken() {
    let net = Net::new();
    let mut config = HubClientConfig::default();
    config.requests_max = 3;
    // No hub is there.
    let mut client = sync_client(&net, config);
    let mut seen = Seen::default();
    let cast = || client.try_cast(hub::Name::new("news").unwrap(), "hello");
    let sent: Vec<HubRequestId> = (0..3).map(|_| cast().unwrap()).collect();
    assert_eq!(cast(), Err(TryError::Full));
    for request in sent {
        assert_eq!(
            seen.outcome(&mut client, request),
            HubOutcome::NotSent(NotSent::HubDown)
        );
    }
    client.shutdown(PATIENCE);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor: the futures need no other.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn ha10_mails_of_futures_are_stored_once_while_the_hub_is_killed() {
    const COUNT: u8 = 40;
    let mut net = Net::new();
    let mut hub = net.hub_process();
    let client = async_client(&net, "server-0");
    for number in 0..COUNT {
        if number % 20 == 10 {
            hub.kill();
            hub = net.hub_process();
        }
        block_on(client.mail(PLAYER, vec![number], Duration::ZERO)).unwrap();
    }
    let expected: Vec<Bytes> = (0..COUNT).map(|number| vec![number].into()).collect();
    assert_eq!(received(&net, COUNT), expected);
    client.shutdown(PATIENCE);
    hub.kill();
}

#[test]
fn ha10_futures_of_keys_and_events_end_when_the_hub_answers() {
    let mut net = Net::new();
    let hub = net.hub_process();
    let mut client = async_client(&net, "server-0");
    while block_on(client.next_event()) != HubClientEvent::Up {}
    let key = KvKey::new("zone/7").unwrap();
    let watch = client
        .watch(KvPrefix::new("zone/").unwrap(), Revision::NONE)
        .unwrap();
    let revision = block_on(client.put(KvPut::new(key.clone(), "one"))).unwrap();
    let entry = block_on(client.get(key.clone())).unwrap().unwrap();
    assert_eq!(
        (entry.revision, &entry.value.0[..]),
        (revision, &b"one"[..])
    );
    loop {
        if let HubClientEvent::KeyChanged { watch: of, change } = block_on(client.next_event()) {
            assert_eq!((of, change.revision), (watch, revision));
            break;
        }
    }
    let other = block_on(client.delete(key, Some(Revision(1))));
    assert!(matches!(other, Err(HubClientError::Key(_))), "{other:?}");
    hub.kill();
    while block_on(client.next_event()) != HubClientEvent::Down {}
    client.shutdown(PATIENCE);
}
