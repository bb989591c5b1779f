//! Tests of the queue: order, length, tickets, closing.
#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pilotfish::GenerateOptions;
use tokio::sync::mpsc;

use super::{Queue, Refusal, Ticket};
use crate::ask::Ask;
use crate::worker::Update;

fn push(queue: &Arc<Queue>, name: u32) -> Result<(Ticket, mpsc::Receiver<Update>), Refusal> {
    let (sender, receiver) = mpsc::channel(1);
    let ask = Ask { prompt: vec![name], options: GenerateOptions::default(), choices: 1 };
    Ok((queue.push(ask, sender)?, receiver))
}

#[test]
fn the_queue_keeps_its_order_and_its_length() {
    let queue = Queue::new(2);
    let first = push(&queue, 1).unwrap();
    let second = push(&queue, 2).unwrap();
    assert_eq!(push(&queue, 3).err(), Some(Refusal::Full(2)));
    assert_eq!(queue.take().unwrap().ask.prompt, [1]);
    assert_eq!(queue.load(), (1, true));
    let third = push(&queue, 3).unwrap();
    drop(second);
    let fourth = push(&queue, 4).unwrap();
    queue.done();
    assert_eq!(queue.take().unwrap().ask.prompt, [3]);
    assert_eq!(queue.take().unwrap().ask.prompt, [4]);
    drop((first, third, fourth));
}

#[test]
fn a_ticket_stops_its_own_request_only() {
    let queue = Queue::new(4);
    let (first, _r1) = push(&queue, 1).unwrap();
    let (second, _r2) = push(&queue, 2).unwrap();
    let running = queue.take().unwrap();
    drop(second);
    assert!(!running.cancel.load(Ordering::Relaxed), "the running one goes on");
    assert_eq!(queue.load(), (0, true));
    drop(first);
    assert!(running.cancel.load(Ordering::Relaxed));
}

#[test]
fn no_waiting_room_still_lets_one_in() {
    let queue = Queue::new(0);
    let first = push(&queue, 1).unwrap();
    assert_eq!(push(&queue, 2).err(), Some(Refusal::Full(1)));
    let job = queue.take().unwrap();
    assert_eq!(push(&queue, 2).err(), Some(Refusal::Full(0)));
    queue.done();
    drop((first, job));
    push(&queue, 3).unwrap();
}

#[test]
fn a_closed_queue_lets_go_of_all_who_wait() {
    let queue = Queue::new(4);
    let (_ticket, mut updates) = push(&queue, 1).unwrap();
    let worker = {
        let queue = Arc::clone(&queue);
        std::thread::spawn(move || {
            let job = queue.take();
            (job.is_some(), queue.take().is_none())
        })
    };
    while queue.load() != (0, true) {
        std::thread::yield_now();
    }
    let (_waits, mut waiting) = push(&queue, 2).unwrap();
    // The worker may have taken it meanwhile; closing comes first where it has not.
    queue.close();
    assert_eq!(push(&queue, 3).err(), Some(Refusal::Closed));
    let (first, ended) = worker.join().unwrap();
    assert!(first);
    assert!(waiting.blocking_recv().is_none() && updates.blocking_recv().is_none());
    assert!(ended || queue.take().is_none());
}
