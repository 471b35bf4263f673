//! Two sides exchange messages over a lossy pipe.

mod abandoned;
mod delivery;
mod hostile;
mod kinds;
mod pipe;
mod retransmits;
mod schedule;
mod tracked;
