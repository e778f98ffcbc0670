//! Wakes a thread that waits at a channel of one token.

use crossbeam_channel::Sender;

/// Wakes a worker.
pub fn wake(sender: &Sender<()>) {
    if sender.try_send(()).is_err() {
        // A full channel holds a token already, and a closed one belongs to a worker that has ended.
    }
}
