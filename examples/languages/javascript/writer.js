// Places an order and writes its events, each in the transaction of its change, with
// Prisma.
//
//     npx prisma generate
//     DATABASE_URL=postgres://app@localhost/app node writer.js 42
import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "@prisma/client";

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });

function event(tx, order, type) {
  return tx.event.create({
    data: {
      aggregatetype: "order", aggregateid: order.id.toString(), type,
      payload: { id: Number(order.id), status: order.status },
    },
  });
}

const id = BigInt(process.argv[2]);
await prisma.$transaction(async (tx) => {
  const order = await tx.order.create({ data: { id, status: "PLACED" } });
  await event(tx, order, "OrderPlaced"); // tx, not prisma: that would be another transaction
});
await prisma.$transaction(async (tx) => {
  // The update locks the row, which keeps the events of an order in the order of its
  // changes.
  const order = await tx.order.update({ where: { id }, data: { status: "PAID" } });
  await event(tx, order, "OrderPaid");
});
await prisma.$disconnect();
