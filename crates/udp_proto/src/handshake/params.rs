//! Transport parameters of each side, 40 bytes, authenticated by the handshake.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | idle timeout, milliseconds |
//! | 4 | 1 | longest acknowledgement delay, milliseconds |
//! | 5 | 2 | keepalive, milliseconds |
//! | 7 | 2 | largest datagram the sender accepts, bytes |
//! | 9 | 4 | receive window, bytes of reliable payload |
//! | 13 | 2 | message window, ids |
//! | 15 | 1 | channels |
//! | 16 | 1 | flags, 0 |
//! | 17 | 7 | boot id: the low bytes of the sender's `InstanceId` |
//! | 24 | 16 | [reset token](super::reset), 0 without one |

use core::time::Duration;

use wire::codec::concat;
use wire::{Reader, Writer};

use super::Malformed;
use super::reset::ResetToken;

use crate::config::{Config, Mtu};

/// Length of the encoded parameters, bytes.
pub const LEN: usize = 40;
const MESSAGE_WINDOW: u16 = 1_024;

/// Parameters of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// The sender's idle timeout.
    pub idle_timeout: Duration,
    /// The sender's longest acknowledgement delay.
    pub ack_delay_max: Duration,
    /// The sender's keepalive interval.
    pub keepalive: Duration,
    /// Largest datagram that the sender accepts, bytes.
    pub datagram_max: u16,
    /// Reliable payload that the sender may hold unread, in bytes.
    pub receive_window: u32,
    /// Number of channels.
    pub channel_count: u8,
    /// Low 7 bytes of the sender's instance id; 0 from a game client.
    pub boot_id: [u8; 7],
    /// The session's reset token; `None` if the sender never sends resets.
    pub reset_token: Option<ResetToken>,
}

impl Params {
    /// Decodes parameters.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for a value out of range; the session is closed with `PARAMS`.
    pub fn decode(bytes: &[u8; LEN]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let idle_ms = reader.u32()?;
        let ack_delay_ms = reader.u8()?;
        let keepalive_ms = reader.u16()?;
        let datagram_max = reader.u16()?;
        let receive_window = reader.u32()?;
        let message_window = reader.u16()?;
        let channel_count = reader.u8()?;
        let flags = reader.u8()?;
        let boot_id = reader.array()?;
        let reset_token = ResetToken::decode(reader.array()?);
        let in_range = (2_000..=120_000).contains(&idle_ms)
            && (200..=20_000).contains(&keepalive_ms)
            && datagram_max >= Mtu::MIN.get()
            && message_window == MESSAGE_WINDOW
            && (1..=32).contains(&channel_count)
            && flags == 0;
        if !in_range {
            return Err(Malformed);
        }
        Ok(Self {
            idle_timeout: Duration::from_millis(idle_ms.into()),
            ack_delay_max: Duration::from_millis(ack_delay_ms.into()),
            keepalive: Duration::from_millis(keepalive_ms.into()),
            datagram_max,
            receive_window,
            channel_count,
            boot_id,
            reset_token,
        })
    }

    /// Returns the encoded parameters.
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = Vec::with_capacity(LEN);
        let mut writer = Writer::new(&mut bytes);
        writer.u32(u32::try_from(self.idle_timeout.as_millis()).unwrap_or(u32::MAX));
        writer.u8(u8::try_from(self.ack_delay_max.as_millis()).unwrap_or(u8::MAX));
        writer.u16(u16::try_from(self.keepalive.as_millis()).unwrap_or(u16::MAX));
        writer.u16(self.datagram_max);
        writer.u32(self.receive_window);
        writer.u16(MESSAGE_WINDOW);
        writer.u8(self.channel_count);
        writer.u8(0);
        writer.bytes(&self.boot_id);
        match &self.reset_token {
            Some(token) => writer.bytes(token.expose()),
            None => writer.zeros(ResetToken::LEN),
        }
        concat(&[&bytes])
    }

    /// Returns the parameters of `config`, for an instance id that ends in `boot_id`.
    pub fn of(config: &Config, boot_id: [u8; 7]) -> Self {
        Self {
            idle_timeout: config.idle_timeout.get(),
            ack_delay_max: ACK_DELAY_MAX,
            keepalive: config.keepalive.get(),
            datagram_max: DATAGRAM_MAX,
            receive_window: u32::try_from(config.receive_window()).unwrap_or(u32::MAX),
            channel_count: u8::try_from(config.channels.rows().len()).unwrap_or(u8::MAX),
            boot_id,
            reset_token: None,
        }
    }
}

/// Our longest acknowledgement delay; TWP/1, section 6.2.
pub const ACK_DELAY_MAX: Duration = Duration::from_millis(25);
/// The largest datagram that we accept; TWP/1, section 10.
pub const DATAGRAM_MAX: u16 = 1_500;
