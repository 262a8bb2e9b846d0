# Places an order and writes its events, each in the transaction of its change, with
# Rails' Active Record.
#
#     DATABASE_URL=postgres://app@localhost/app ruby writer.rb 42
require "active_record"

class Order < ActiveRecord::Base; end

class Event < ActiveRecord::Base
  self.table_name = "outbox"
  self.inheritance_column = nil # type is a column like others

  def self.of(order, type)
    # create!, and not in after_commit: that runs outside the transaction.
    create!(aggregatetype: "order", aggregateid: order.id.to_s, type: type, payload: { id: order.id, status: order.status })
  end
end

ActiveRecord::Base.establish_connection(ENV.fetch("DATABASE_URL"))
id = Integer(ARGV.fetch(0))
Order.transaction do
  Event.of(Order.create!(id: id, status: "PLACED"), "OrderPlaced")
end
Order.transaction do
  order = Order.lock.find(id) # keeps the events of an order in the order of its changes
  order.update!(status: "PAID")
  Event.of(order, "OrderPaid")
end
