//! ipc-channel: its channel of bytes, and its shared memory.

use ipc_channel::ipc::{
    self, IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcReceiver, IpcSender,
    IpcSharedMemory,
};
use pipewright::Child;

use super::Endpoint;
use crate::Result;

struct Bytes(IpcBytesSender, IpcBytesReceiver);

struct Memory(IpcSender<IpcSharedMemory>, IpcReceiver<IpcSharedMemory>);

pub(super) fn bytes_host(
    start: impl FnOnce(&str) -> Result<Child>,
) -> Result<(Box<dyn Endpoint>, Child)> {
    let (server, name) = IpcOneShotServer::<(IpcBytesSender, IpcBytesReceiver)>::new()?;
    let worker = start(&name)?;
    let (_, (sender, receiver)) = server.accept()?;
    Ok((Box::new(Bytes(sender, receiver)), worker))
}

pub(super) fn bytes_worker(name: &str) -> Result<Box<dyn Endpoint>> {
    let (to_us, ours) = ipc::bytes_channel()?;
    let (sender, theirs) = ipc::bytes_channel()?;
    IpcSender::connect(name.to_owned())?.send((to_us, theirs))?;
    Ok(Box::new(Bytes(sender, ours)))
}

pub(super) fn memory_host(
    start: impl FnOnce(&str) -> Result<Child>,
) -> Result<(Box<dyn Endpoint>, Child)> {
    type Ends = (IpcSender<IpcSharedMemory>, IpcReceiver<IpcSharedMemory>);
    let (server, name) = IpcOneShotServer::<Ends>::new()?;
    let worker = start(&name)?;
    let (_, (sender, receiver)) = server.accept()?;
    Ok((Box::new(Memory(sender, receiver)), worker))
}

pub(super) fn memory_worker(name: &str) -> Result<Box<dyn Endpoint>> {
    let (to_us, ours) = ipc::channel::<IpcSharedMemory>()?;
    let (sender, theirs) = ipc::channel::<IpcSharedMemory>()?;
    IpcSender::connect(name.to_owned())?.send((to_us, theirs))?;
    Ok(Box::new(Memory(sender, ours)))
}

impl Endpoint for Bytes {
    fn send(&mut self, body: &[u8]) -> Result<()> {
        Ok(self.0.send(body)?)
    }

    fn receive(&mut self, with_message: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        with_message(&self.1.recv()?)
    }
}

impl Endpoint for Memory {
    fn send(&mut self, body: &[u8]) -> Result<()> {
        Ok(self.0.send(IpcSharedMemory::from_bytes(body))?)
    }

    fn receive(&mut self, with_message: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        with_message(&self.1.recv()?)
    }
}
