//! Which clients are accepted, and who receives each message.

use std::sync::Arc;

use bytes::Bytes;
use servicer::{ClientClose, ClientEvent, Dest, LeaveCause, MemberId, MessageError, ServerEvent};

use super::harness::{Harness, SETTLE_TIME, closed, message, next_event, text, with_both_modes};

#[test]
fn l2_every_message_reaches_its_addressee_only() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        let mut clients: Vec<_> = (0..12)
            .map(|number| harness.join(&number.to_string()))
            .collect();
        let ids: Vec<MemberId> = clients.iter().map(|(_, id)| *id).collect();
        assert_eq!(harness.server.members().collect::<Vec<_>>(), ids);
        for round in 0..20 {
            for id in &ids {
                let payload = text(&format!("{round} for {id}"));
                assert_eq!(harness.server.send(*id, payload), Ok(1));
            }
            let odd: Arc<[MemberId]> = ids.iter().copied().filter(|id| id.0 % 2 == 1).collect();
            let count = odd.len();
            let payload = text(&format!("{round} for the odd"));
            assert_eq!(harness.server.send(Dest::Many(odd), payload), Ok(count));
            let payload = text(&format!("{round} for all"));
            assert_eq!(harness.server.send(Dest::All, payload), Ok(ids.len()));
        }
        for (client, id) in &mut clients {
            for round in 0..20 {
                assert_eq!(message(client), format!("{round} for {id}"));
                if id.0 % 2 == 1 {
                    assert_eq!(message(client), format!("{round} for the odd"));
                }
                assert_eq!(message(client), format!("{round} for all"));
            }
            assert_eq!(client.wait_event(SETTLE_TIME / 10), None);
        }
        // And in the other direction.
        for (client, id) in &clients {
            for number in 0..20 {
                client.send(text(&format!("{number} of {id}"))).unwrap();
            }
        }
        let mut next = vec![0; ids.len()];
        for _ in 0..20 * ids.len() {
            let ServerEvent::Message { from, payload } = harness.next() else {
                panic!("no message")
            };
            let place = ids.iter().position(|id| *id == from).unwrap();
            assert_eq!(payload, format!("{} of {from}", next[place]));
            next[place] += 1;
        }
    });
}

#[test]
fn l3_refused_clients_get_the_reason_and_accepted_ones_the_welcome() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        let mut rude = harness.call("rude:wrong");
        let request = harness.request();
        assert_eq!(request.address().unwrap().ip(), harness.address.ip());
        harness.server.refuse(request, text("wrong password"));
        let refused = ClientClose::Refused(text("wrong password"));
        assert_eq!(closed(&mut rude), refused);

        let mut ann = harness.call("ann:right");
        // Messages sent before the acceptance arrive after it.
        ann.send(text("hello")).unwrap();
        let request = harness.request();
        let id = harness
            .server
            .accept(request, text("udp 192.0.2.1:7"))
            .unwrap();
        harness.server.send(id, text("first")).unwrap();
        let welcome = text("udp 192.0.2.1:7");
        assert_eq!(next_event(&mut ann), ClientEvent::Accepted { welcome });
        assert_eq!(message(&mut ann), "first");
        let ServerEvent::Message { from, payload } = harness.next() else {
            panic!("no message")
        };
        assert_eq!((from, payload), (id, text("hello")));
        // A client gets no answer if its request is dropped.
        let mut ignored = harness.call("ignored");
        drop(harness.request());
        assert_eq!(closed(&mut ignored), ClientClose::Lost);
    });
}

#[test]
fn l3_chat_reaches_all_under_the_name_that_the_server_set() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        let names = ["ann", "bob", "eve"];
        let mut clients: Vec<_> = names.iter().map(|name| harness.join(name)).collect();
        // The server identifies a client by the accepted connection, whatever the client claims.
        let (eve, _) = &clients[2];
        eve.send(text("ann: I am ann")).unwrap();
        let ServerEvent::Message { from, payload } = harness.next() else {
            panic!("no message")
        };
        let place = clients.iter().position(|(_, id)| *id == from).unwrap();
        let line = format!("{}: {}", names[place], String::from_utf8_lossy(&payload));
        assert_eq!(harness.server.send(Dest::All, text(&line)), Ok(3));
        for (client, _) in &mut clients {
            assert_eq!(message(client), "eve: ann: I am ann");
        }
    });
}

#[test]
fn l3_each_end_of_a_member_is_reported_with_its_cause() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        let (leaver, left) = harness.join("leaver");
        let (mut rude, dismissed) = harness.join("rude");
        leaver.shutdown(SETTLE_TIME);
        assert_eq!(harness.left(left), LeaveCause::Finished);
        harness.server.send(dismissed, text("last")).unwrap();
        harness.server.dismiss(dismissed, text("be nice")).unwrap();
        // Data sent earlier still arrives.
        assert_eq!(message(&mut rude), "last");
        let end = ClientClose::Dismissed(text("be nice"));
        assert_eq!(closed(&mut rude), end);
        assert_eq!(harness.left(dismissed), LeaveCause::Dismissed);
        assert_eq!(harness.server.send(dismissed, text("gone")), Ok(0));
        assert_eq!(harness.server.send(Dest::All, text("nobody")), Ok(0));
    });
}

#[test]
fn a_message_over_the_limit_is_refused_or_closes_its_connection() {
    with_both_modes(|mut config| {
        config.message_bytes_max = 2_000;
        let mut harness = Harness::new(&config);
        let (client, id) = harness.join("ann");
        let (fits, over) = (Bytes::from(vec![7; 2_000]), Bytes::from(vec![7; 2_001]));
        assert_eq!(
            harness.server.send(id, over.clone()),
            Err(MessageError::TooLong)
        );
        assert_eq!(client.send(over.clone()), Err(MessageError::TooLong));
        client.send(fits.clone()).unwrap();
        let ServerEvent::Message { payload, .. } = harness.next() else {
            panic!("no message")
        };
        assert_eq!(payload, fits);
        // A client with another limit.
        harness.config.message_bytes_max = 4_000;
        let (other, id) = harness.join("bob");
        other.send(over).unwrap();
        assert_eq!(harness.left(id), LeaveCause::Lost);
        drop(client);
    });
}

#[test]
fn ls_g20_a_message_to_all_is_one_request_per_thread() {
    with_both_modes(|config| {
        let mut harness = Harness::new(&config);
        let mut clients: Vec<_> = (0..12).map(|_| harness.join("crowd")).collect();
        let before = harness.sum(|counters| counters.requests);
        harness.server.send(Dest::All, text("to all")).unwrap();
        for (client, _) in &mut clients {
            assert_eq!(message(client), "to all");
        }
        let servicers = harness.server.counters().len() - 1;
        let orders = harness.sum(|counters| counters.requests) - before;
        assert_eq!(usize::try_from(orders), Ok(servicers));
        let expected = match config.servicers {
            Some(servicer::TcpServicers::Pool { threads }) => threads.get(),
            _ => clients.len(),
        };
        assert_eq!(servicers, expected);
    });
}

#[test]
fn members_are_spread_evenly_and_their_number_is_limited() {
    with_both_modes(|mut config| {
        config.clients_max = 6;
        let mut harness = Harness::new(&config);
        let mut clients: Vec<_> = (0..6).map(|_| harness.join("crowd")).collect();
        let loads: Vec<_> = harness.server.counters();
        let loads: Vec<_> = loads.iter().skip(1).map(|it| it.taken_over).collect();
        assert!(loads == [2; 3] || loads == [1; 6], "{loads:?}");
        let mut last = harness.call("one too many");
        let request = harness.request();
        let refused = harness.server.accept(request, Bytes::new()).unwrap_err();
        assert_eq!(refused.cause, servicer::reliable::AcceptFault::Full);
        harness.server.refuse(*refused.request, text("full"));
        assert_eq!(closed(&mut last), ClientClose::Refused(text("full")));
        // The slot of a member that left is free again.
        let (leaver, id) = clients.remove(0);
        leaver.shutdown(SETTLE_TIME);
        harness.left(id);
        let (_client, _) = harness.join("the next");
    });
}
