use udp_proto::CloseReason;

use super::*;
use crate::{Client, Server};

#[test]
fn u17_where_too_many_events_wait_whoever_comes_is_sent_away_and_not_told_of() {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut server = Server::bind(local, AppId(5)).unwrap();
    server.socket.driver.act(|_, _, host| host.events_max = 1);
    let join = |server: &mut Server| {
        let mut client = Client::connect(server.address(), AppId(5), server.key()).unwrap();
        for _ in 0..20_000 {
            server.socket.turn();
            for event in client.wait_tick(NonZeroU8::MAX).unwrap() {
                match event {
                    Event::Connected { .. } => client.send(crate::RELIABLE, b"here").unwrap(),
                    Event::Disconnected { reason, .. } => return (client, Some(reason)),
                    other @ (Event::Message { .. }
                    | Event::Unreachable { .. }
                    | Event::Settled { .. }) => {
                        panic!("{other:?}")
                    }
                }
            }
            if !server.socket.driver.application().readable.is_empty() {
                return (client, None);
            }
        }
        panic!("nothing came of it");
    };
    let (first, reason) = join(&mut server);
    assert_eq!(reason, None);
    // What the first one said is no event as long as nobody asks; that it came is one. From here on
    // a message that waits is that of the first.
    let session = server
        .socket
        .driver
        .act(|_, _, host| host.readable.pop_front());
    for _ in 0..2 {
        let (_, reason) = join(&mut server);
        assert_eq!(reason, Some(CloseReason::Peer(CloseCode::Full)));
    }
    server
        .socket
        .driver
        .act(|_, _, host| host.readable.extend(session));
    let events = server.socket.poll();
    assert!(
        matches!(events[..], [Event::Connected { .. }, Event::Message { .. }]),
        "{events:?}"
    );
    drop(first);
}
