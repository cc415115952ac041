//! iceoryx2: publish and subscribe, without overflow, polled.

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::PortFactory as _;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use pipewright::Child;

use super::Endpoint;
use crate::Result;

/// The most messages in flight.
const MESSAGES: usize = 16;
/// Polls between two yields of the processor.
const POLLS: u32 = 512;

type Service = PortFactory<ipc::Service, [u8], ()>;

struct Ports {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    _node: Node<ipc::Service>,
}

pub(super) fn host(
    size: usize,
    start: impl FnOnce(&str) -> Result<Child>,
) -> Result<(Box<dyn Endpoint>, Child)> {
    let name = format!("pipewright-bench-{}", std::process::id());
    let (node, there, back) = services(&name)?;
    let side = ports(node, &there, &back, size)?;
    let worker = start(&name)?;
    while there.dynamic_config().number_of_subscribers() == 0
        || back.dynamic_config().number_of_publishers() == 0
    {
        if worker.try_wait()?.is_some() {
            return Err("the worker failed".into());
        }
        std::thread::yield_now();
    }
    Ok((side, worker))
}

pub(super) fn worker(name: &str, size: usize) -> Result<Box<dyn Endpoint>> {
    let (node, there, back) = services(name)?;
    ports(node, &back, &there, size)
}

/// Opens the services from the host to the worker, and back.
fn services(name: &str) -> Result<(Node<ipc::Service>, Service, Service)> {
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let service = |way: &str| -> Result<Service> {
        let name = ServiceName::new(&format!("{name}-{way}"))?;
        Ok(node
            .service_builder(&name)
            .publish_subscribe::<[u8]>()
            .enable_safe_overflow(false)
            .subscriber_max_buffer_size(MESSAGES)
            .history_size(0)
            .max_publishers(1)
            .max_subscribers(1)
            .open_or_create()?)
    };
    let (there, back) = (service("there")?, service("back")?);
    Ok((node, there, back))
}

fn ports(
    node: Node<ipc::Service>,
    out: &Service,
    into: &Service,
    size: usize,
) -> Result<Box<dyn Endpoint>> {
    let publisher = out
        .publisher_builder()
        .initial_max_slice_len(size)
        .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
        .create()?;
    let subscriber = into.subscriber_builder().create()?;
    Ok(Box::new(Ports { publisher, subscriber, _node: node }))
}

impl Endpoint for Ports {
    fn send(&mut self, body: &[u8]) -> Result<()> {
        self.publisher.loan_slice_uninit(body.len())?.write_from_slice(body).send()?;
        Ok(())
    }

    fn receive(&mut self, with_message: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut polls = 0;
        loop {
            if let Some(sample) = self.subscriber.receive()? {
                return with_message(sample.payload());
            }
            polls += 1;
            match polls % POLLS {
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
    }
}
