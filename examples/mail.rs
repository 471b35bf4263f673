//! Mail to a player who may be offline, through a hub: sends one, or waits for one and prints it.
//!
//! ```text
//! mail node.pem net.join 42 "see you at nine"     sends to player 42
//! mail node.pem net.join 42                       is the node of player 42
//! ```

#![expect(clippy::print_stdout, reason = "a program for people to watch")]
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "most events do not matter here"
)]

use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use tickwire::crypto::{Identity, Provider, Ring};
use tickwire::hub::{JoinFile, MailSeq, Node, NodeConfig, NodeEvent};
use tickwire::servicer::{HubApplication, HubNode};
use tickwire::wire::{ClientId, Instant};

/// The node's part of the game. It runs on the node's thread.
struct Mailbox {
    player: ClientId,
    /// The mail to send; without one, this node holds the player and reads.
    text: Option<String>,
    has_begun: bool,
    done: Sender<String>,
}

impl HubApplication for Mailbox {
    type Request = ();

    fn apply_request(&mut self, _: Instant, _: &mut Node, (): ()) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn on_event(&mut self, now: Instant, node: &mut Node, event: NodeEvent) {
        let line = match event {
            // Again after each reconnect; the node repeats by itself what the hub has not stored.
            NodeEvent::Joined { .. } if !self.has_begun => {
                self.has_begun = true;
                let result = if let Some(text) = self.text.take() {
                    node.mail(now, self.player, text.into(), DAY).err()
                } else {
                    // The number of the last mail that the player's client has stored; 0 is none.
                    node.claim(now, self.player, MailSeq(0), Vec::new().into())
                        .err()
                };
                result.map(|error| format!("error: {error}"))
            }
            NodeEvent::MailStored(_) => Some("stored".to_owned()),
            NodeEvent::MailRefused(_, reason) => Some(format!("error: {reason}")),
            NodeEvent::Refused(reason) => Some(format!("error: {reason}")),
            NodeEvent::Mail {
                claim, seq, body, ..
            } => {
                // Only now the hub deletes it.
                node.acknowledge(now, claim, seq);
                Some(String::from_utf8_lossy(&body).into_owned())
            }
            _ => None,
        };
        if let Some(line) = line {
            // Fails if the program is already ending.
            self.done.send(line).ok();
        }
    }
}

const DAY: Duration = Duration::from_secs(86_400);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(identity), Some(join_file), Some(player)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(
            "expected arguments: identity file, join file, player, and maybe a text".into(),
        );
    };
    let (done, lines) = mpsc::channel();
    let mailbox = Mailbox {
        player: ClientId(player.parse()?),
        text: arguments.next(),
        has_begun: false,
        done,
    };
    let node = HubNode {
        identity: &Identity::from_pem(&fs::read_to_string(identity)?)?,
        join_file: &JoinFile::parse(&fs::read_to_string(join_file)?)?,
        instance: Ring::new().random_instance()?,
    };
    let handle = node.spawn("mail", NodeConfig::default(), mailbox)?;
    let line = lines.recv_timeout(Duration::from_secs(30))?;
    // Sends the acknowledgement and closes the link.
    handle.shutdown(Duration::from_secs(1));
    if let Some(error) = line.strip_prefix("error: ") {
        return Err(error.into());
    }
    println!("{line}");
    Ok(())
}
